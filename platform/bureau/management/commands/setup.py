"""`manage.py setup`: bring the database up to date, before processes that run alone are started."""

from __future__ import annotations

import os
from typing import Any

from django.core.management.base import BaseCommand

from bureau import startup
from bureau.checks import TAG


class Command(BaseCommand):
    help = "Migrate the database, and seed the directory if it is empty. Safe to repeat, and to race."
    requires_system_checks = (TAG,)

    def handle(self, *args: Any, **options: Any) -> None:
        os.umask(0o077)
        startup.check_database()
        startup.prepare_database()
        if options["verbosity"] > 0:
            self.stdout.write("The database is ready.")
