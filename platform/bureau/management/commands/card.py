"""`manage.py card URL`: what an agent says of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from bureau.management import access
from directory import cards
from directory.credentials import authorizer
from directory.discovery import Found, discover
from directory.exceptions import DirectoryError
from directory.models import Agent
from directory.untrusted import json_text, printable


class Command(BaseCommand):
    help = "Look for an agent's card at a URL (its base, its card, or where it is spoken to) and print it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("url", metavar="URL")
        parser.add_argument("--json", action="store_true", help="Print the card itself, in the form of A2A 1.0.")
        access.add_options(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        url = options["url"]
        try:
            secret = access.secret_from(options)
            found = asyncio.run(discover(url, authorizer(secret, url) if secret else None))
        except DirectoryError as error:
            raise CommandError(str(error)) from None
        if options["json"]:
            self.stdout.write(json_text(found.card, indent=2))
            return
        for line in described(found):
            self.stdout.write(printable(line))


def described(found: Found) -> Iterator[str]:
    """The card for people, a line each."""
    card = found.card
    yield f"{card['name']} {card.get('version', '')}".rstrip()
    if card.get("description"):
        yield f"  {card['description']}"
    yield f"Card:       {found.url}"
    yield f"Signature:  {Agent.Signature(found.signature.state).label}. {found.signature.note}".rstrip()
    for interface in cards.interfaces(card):
        chosen = " (chosen)" if interface == found.interface else ""
        yield f"Interface:  {interface}{chosen}"
    claims = [name for name in ("streaming", "pushNotifications", "extendedAgentCard") if cards.capability(card, name)]
    yield f"Can:        {', '.join(claims) or 'answer, no more'}"
    yield f"Wants:      {' or '.join(map(str, cards.auth_needs(card))) or 'no credential'}"
    for skill in cards.skills(card):
        yield f"Skill:      {skill['skill_id']}: {skill['name']}"
        if skill["description"]:
            yield f"            {skill['description']}"
        for example in skill["examples"]:
            yield f"            e.g. {example}"
