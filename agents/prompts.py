"""Prompts: a stable part that servers may cache, and the request, with everything foreign fenced as data.

A fence is a pair of tags that carry a random word made after the text was written, so no text can close it.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.template import Context, Engine
from django.template.base import Template

# Divides a template file into the part that is the same every time and the part about this request.
DIVIDER = "=== request ==="
HIDDEN = "***"
SHORTEST_SECRET = 6


@dataclass(frozen=True, slots=True)
class Prompt:
    """`stable` goes first and is cached; `request` is about this one."""

    stable: str
    request: str


@dataclass(frozen=True, slots=True)
class Fenced:
    """Foreign text for a template: shown between tags that it cannot close."""

    label: str
    text: str
    source: str = ""


def render(name: str, stable: Mapping[str, Any], request: Mapping[str, Any]) -> Prompt:
    """Fill in templates/prompts/<name>.txt. `Fenced` values, also inside lists, come out between their tags.

    `stable` must hold nothing of the request: it would make the cached part different every time.
    """
    first, second = _template(name)
    word = _word_for(request)
    filled = {key: _fence(value, word) for key, value in request.items()}
    return Prompt(_fill(first, stable), _fill(second, {"word": word, **filled}))


def _fence(value: Any, word: str) -> Any:
    if isinstance(value, Fenced):
        source = f" from {_one_line(value.source)}" if value.source else ""
        return f"<{value.label}-{word}>{source}\n{value.text}\n</{value.label}-{word}>"
    if isinstance(value, list | tuple):
        return [_fence(item, word) for item in value]
    return value


def _one_line(text: str) -> str:
    """A file's name may hold line breaks and brackets; inside a tag's line it may not."""
    return repr(" ".join(text.split())[:200].replace("<", "").replace(">", ""))


def _word_for(request: Mapping[str, Any]) -> str:
    """A word that occurs nowhere in the request."""
    everything = repr(request)
    while (word := secrets.token_hex(8)) in everything:
        continue
    return word


@lru_cache(maxsize=32)
def _template(name: str) -> tuple[Template, Template]:
    # Prompts are plain text: escaping for HTML would change what people wrote.
    folders: Any = settings.TEMPLATES[0]["DIRS"]
    engine = Engine(dirs=list(folders), autoescape=False)
    source = engine.get_template(f"prompts/{name}.txt").source
    first, divider, second = str(source).partition(DIVIDER)
    assert divider, f"templates/prompts/{name}.txt has no line {DIVIDER!r}"
    return engine.from_string(first.strip()), engine.from_string(second.strip())


def _fill(template: Template, values: Mapping[str, Any]) -> str:
    return template.render(Context(dict(values), autoescape=False)).strip()


def hide_secrets(text: str) -> str:
    """The text without the secrets that Bureau itself was configured with, should a file or a message hold one."""
    given = {settings.SECRET_KEY, settings.ANTHROPIC_API_KEY, *settings.ENVIRONMENT.secrets()}
    for secret in sorted((secret for secret in given if len(secret) >= SHORTEST_SECRET), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text
