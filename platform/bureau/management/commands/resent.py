"""`manage.py resent`: how often requests had to be sent again with more detail."""

from __future__ import annotations

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agents.resent import LOOKED_AT, Resent, read_resent


class Command(BaseCommand):
    help = "Say how often requests had to be sent again with more detail, with and without having been asked for it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--last", type=int, default=LOOKED_AT, metavar="N", help="Look at the newest N missions (%(default)s)."
        )
        parser.add_argument("--json", action="store_true", help="Print one JSON object.")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["last"] < 1:
            raise CommandError("--last is a number of missions, 1 or more.")
        found = read_resent(options["last"])
        text = json.dumps(found.as_json(), indent=2) if options["json"] else as_text(found)
        sys.stdout.write(text + "\n")


def as_text(found: Resent) -> str:
    """The counts for people, a line each."""
    rows = (
        ("Missions looked at", found.missions, None),
        ("Sent again with more detail", found.total, found.rate),
        ("  when asked for it, in the same mission", found.answered, None),
        ("  as a new mission, although asked before", found.restated_asked, found.rate_asked),
        ("  as a new mission, without having been asked", found.restated_unasked, found.rate_unasked),
    )
    of = ("", "of all", "", f"of {found.asked} that were asked", f"of {found.missions - found.asked} that were not")
    lines = []
    for (label, number, share), whole in zip(rows, of, strict=True):
        lines.append(f"{label:<48}{number:>6}" + (f"  {share:.1%} {whole}" if share is not None else ""))
    return "\n".join(lines)
