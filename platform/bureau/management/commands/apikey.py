"""`manage.py apikey create|list|revoke`: the keys that programs call Bureau with."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser

from bureau import startup
from bureau.checks import TAG
from directory.exceptions import ClientNameTaken
from directory.identity import GRANTABLE, SCOPES
from directory.models import Agent, ApiClient
from directory.services import create_api_client, revoke_api_client


class Command(BaseCommand):
    help = "Make, list and revoke API keys."
    requires_system_checks = (TAG,)

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="create | list | revoke")
        create = verbs.add_parser("create", help="Make a key and print it, this once.")
        create.add_argument("name", help="What the key is for; unique.")
        create.add_argument("--user", metavar="NAME", help="Who answers for it.")
        create.add_argument(
            "--scope",
            action="append",
            choices=GRANTABLE,
            help="What it may do (default: send, read, cancel). manage: have agents remembered.",
        )
        create.add_argument("--agent", action="append", metavar="SLUG", help="Whom it may call (default: all agents).")
        verbs.add_parser("list", help="Show all keys, without their secret part.")
        revoke = verbs.add_parser("revoke", help="Refuse a key from now on, for good.")
        revoke.add_argument("name", help="The name it was made with.")

    def handle(self, *args: Any, **options: Any) -> None:
        verbs = {"create": self._create, "list": self._list, "revoke": self._revoke}
        startup.require_tables()
        verbs[options["verb"]](options)

    def _create(self, options: dict[str, Any]) -> None:
        name = options["name"].strip()
        if not name:
            raise CommandError("Give the key a name.")
        user = None
        if options["user"]:
            user = get_user_model().objects.filter(username=options["user"], is_active=True).first()
            if user is None:
                raise CommandError(f"There is no user {options['user']!r}.")
        agents = options["agent"] or []
        for slug in agents:
            if not Agent.objects.filter(slug=slug).exists():
                raise CommandError(f"There is no agent {slug!r}.")
        try:
            _, key = create_api_client(name, user, scopes=options["scope"] or SCOPES, agents=agents)
        except ClientNameTaken:
            raise CommandError(f"There is a key named {name!r} already.") from None
        self.stderr.write("Keep it now; it cannot be shown again.", self.style.NOTICE)
        self.stdout.write(key)

    def _list(self, options: dict[str, Any]) -> None:
        for client in ApiClient.objects.select_related("user"):
            state = f"revoked {client.revoked_at:%Y-%m-%d}" if client.revoked_at else "live"
            used = f"{client.last_used_at:%Y-%m-%d %H:%M}" if client.last_used_at else "never"
            owner = client.user.get_username() if client.user else "-"
            may = f"{', '.join(client.scopes) or 'nothing'}; {', '.join(client.agents) or 'all agents'}"
            self.stdout.write(f"{client.name}\t{client.prefix}…\t{state}\tuser {owner}\t{may}\tlast used {used}")

    def _revoke(self, options: dict[str, Any]) -> None:
        client = ApiClient.objects.filter(name=options["name"]).first()
        if client is None:
            raise CommandError(f"There is no key named {options['name']!r}.")
        if not revoke_api_client(client):
            raise CommandError(f"The key {client.name!r} was revoked already.")
        self.stdout.write(f"The key {client.name!r} is revoked.")
