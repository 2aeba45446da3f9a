"""`manage.py seed`: the agents that come with Bureau."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from agents.seeding import seed
from bureau import startup
from bureau.checks import TAG


class Command(BaseCommand):
    help = "Create the agents that come with Bureau, or bring them up to date. Safe to repeat."
    requires_system_checks = (TAG,)

    def handle(self, *args: Any, **options: Any) -> None:
        startup.require_tables()
        seed()
        if options["verbosity"] > 0:
            self.stdout.write("The directory has its agents.")
