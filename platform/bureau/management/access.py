"""Options of commands that need a credential for a remote agent. The secret itself is never an argument."""

from __future__ import annotations

import getpass
import sys
from typing import Any

from django.core.management.base import CommandError, CommandParser

from directory.credentials import DEFAULT_HEADER, Secret
from directory.models import Credential


def add_options(parser: CommandParser) -> None:
    """Add --auth and what belongs to it."""
    group = parser.add_argument_group(
        "credential",
        "With --auth, the secret is asked for; without a terminal, it is the first line of standard input.",
    )
    group.add_argument("--auth", choices=Credential.Kind.values, help="What kind of credential the agent wants.")
    group.add_argument("--header", default="", help=f"Header of an API key (default: {DEFAULT_HEADER}).")
    group.add_argument("--username", default="", help="User name, or client id of oauth2.")
    group.add_argument("--token-url", default="", metavar="URL", help="Where oauth2 tokens are issued.")
    group.add_argument("--scope", default="", help="Scopes to ask for, separated by blanks.")


def secret_from(options: dict[str, Any]) -> Secret | None:
    """The credential that the options describe, with the secret that was typed; None without --auth.

    Raises CommandError, CredentialInvalid.
    """
    if not options["auth"]:
        if any(options[name] for name in ("header", "username", "token_url", "scope")):
            raise CommandError("Say with --auth what kind of credential this is.")
        return None
    typed = getpass.getpass("Secret: ") if sys.stdin.isatty() else sys.stdin.readline()
    secret = Secret(
        kind=options["auth"],
        secret=typed.strip(),
        header=options["header"],
        username=options["username"],
        token_url=options["token_url"],
        scope=options["scope"],
    )
    secret.check()
    return secret
