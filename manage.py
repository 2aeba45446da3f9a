#!/usr/bin/env python
"""Bureau's command line: `manage.py up` starts everything; `manage.py help` lists the rest."""

import os
import sys
from pathlib import Path

BASE = Path(__file__).resolve().parent

# Settings are read from the environment before a command parses its options, so these are found first.
SHARED_OPTIONS = {
    "--data": "BUREAU_DATA",
    "--host": "BUREAU_HOST",
    "--port": "BUREAU_PORT",
    "--workers": "BUREAU_WORKERS",
}


def take_shared_options(arguments: list[str]) -> list[str]:
    """Move `--data FOLDER` and its like, anywhere before a `--`, into the environment; return the rest."""
    left: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            return [*left, argument, *rest]
        name, equals, value = argument.partition("=")
        if name not in SHARED_OPTIONS:
            left.append(argument)
            continue
        if not equals:
            value = next(rest, "")
        if not value:
            sys.exit(f"manage.py: {name} needs a value after it.")
        os.environ[SHARED_OPTIONS[name]] = value
    return left


def main() -> None:
    # `platform/` is only a source root; tests/shell/test_layout.py says why.
    sys.path[:0] = [str(BASE), str(BASE / "platform")]
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bureau.settings")
    try:
        from django.core.management import execute_from_command_line
    except ImportError:
        sys.exit("Django is not installed for this Python. Run `make install`, then use .venv/bin/python.")
    try:
        execute_from_command_line([sys.argv[0], *take_shared_options(sys.argv[1:])])
    except KeyboardInterrupt:
        sys.exit(130)  # as a shell would report it


if __name__ == "__main__":
    main()
