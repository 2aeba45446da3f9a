"""Wrong settings, found before anything starts: each is a sentence, with what to do about it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register

from bureau import env

# Our commands run these checks alone: all others load every page, which only the web process needs.
TAG = "bureau"
REQUIRED_IN_PRODUCTION = (
    (env.SECRET_KEY, "E002", "Set it to 50 random characters or more, the same for every process."),
    (env.ALLOWED_HOSTS, "E003", "Set it to the host names that people use, for example bureau.example.org."),
    (env.DATABASE_URL, "E004", "Set it to postgresql://user:password@host:5432/name."),
    (env.REDIS_URL, "E005", "Set it to redis://host:6379/0."),
)


@register(TAG)
def environment(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Every variable that could not be parsed, and names that look like a slip of the pen."""
    problems = settings.ENVIRONMENT.problems
    unknown = settings.ENVIRONMENT.unknown
    return [
        *(Error(problem.message, hint=problem.hint, id="bureau.E001") for problem in problems),
        *(Warning(problem.message, hint=problem.hint, id="bureau.W001") for problem in unknown),
    ]


@register(TAG)
def production(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """What production may not leave to a default."""
    if not settings.BUREAU_PRODUCTION:
        return []
    found: list[CheckMessage] = [
        Error(f"{setting.name} is required when BUREAU_PRODUCTION is on.", hint=hint, id=f"bureau.{code}")
        for setting, code, hint in REQUIRED_IN_PRODUCTION
        if not settings.ENVIRONMENT.given(setting) and not settings.ENVIRONMENT.is_broken(setting)
    ]
    if settings.ENVIRONMENT[env.ALLOW_ANONYMOUS]:
        found.append(
            Error(
                "BUREAU_ALLOW_ANONYMOUS cannot be on in production.",
                hint="Unset it, and give each caller a key: manage.py apikey create NAME.",
                id="bureau.E006",
            )
        )
    return found


@register(TAG)
def folders(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """The data folder must be ours to write, and nobody else's to read; the project root must exist."""
    found: list[CheckMessage] = []
    data: Path = settings.BUREAU_DATA
    if not settings.ENVIRONMENT.is_broken(env.DATA):
        if os.access(data, os.W_OK | os.X_OK):
            found += _readable_by_others(data)
        else:
            hint = "Choose another folder, or let this user write there."
            found.append(Error(f"BUREAU_DATA: {data} cannot be written by this user.", hint=hint, id="bureau.E007"))
    if not settings.BUREAU_PROJECT_ROOT.is_dir():
        hint = "Name the folder that the file agents may see."
        message = f"BUREAU_PROJECT_ROOT: {settings.BUREAU_PROJECT_ROOT} is not a folder."
        found.append(Error(message, hint=hint, id="bureau.E008"))
    return found


def _readable_by_others(data: Path) -> Iterator[CheckMessage]:
    secret = data / "secret_key"
    if secret.exists() and secret.stat().st_mode & 0o077:
        yield Error(
            f"{secret} can be read by others on this machine.",
            hint=f"Run: chmod 600 {secret}",
            id="bureau.E009",
        )
    if data.stat().st_mode & 0o077:
        hint = f"Missions and files are kept there. Run: chmod 700 {data}"
        yield Warning(f"{data} is open to others on this machine.", hint=hint, id="bureau.W002")


@register(TAG)
def card_signing(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """The key that cards are signed with, where there is one, must be readable and of a known kind."""
    if settings.BUREAU_CARD_KEY_FILE is None:
        return []
    from bureau.a2a.card_signing import CardKeyUnusable, card_key

    try:
        card_key()
    except (CardKeyUnusable, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        hint = "Make one: openssl ecparam -name prime256v1 -genkey -noout -out FILE; or unset it."
        return [Error(f"{settings.BUREAU_CARD_KEY_FILE}: {reason}", hint=hint, id="bureau.E010")]
    return []


@register(TAG)
def exposure(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Development settings on an address that other machines can reach."""
    if settings.BUREAU_PRODUCTION or settings.BUREAU_LOOPBACK:
        return []
    return [
        Warning(
            f"BUREAU_HOST={settings.BUREAU_HOST} can be reached from other machines without encryption.",
            hint="Set BUREAU_PRODUCTION=true behind an HTTPS proxy, or use BUREAU_HOST=127.0.0.1.",
            id="bureau.W003",
        )
    ]


@register(TAG, deploy=True)
def public_address(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Agent cards carry the public address; callers send their keys to it."""
    if settings.BUREAU_PUBLIC_URL.startswith("https://"):
        return []
    return [
        Warning(
            f"BUREAU_PUBLIC_URL is {settings.BUREAU_PUBLIC_URL}, which is not encrypted.",
            hint="Set it to the https:// address that callers use.",
            id="bureau.W004",
        )
    ]
