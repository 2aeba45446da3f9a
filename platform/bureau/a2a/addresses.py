"""Addresses that travel: agent cards and parts carry them, so they are absolute."""

from __future__ import annotations

from uuid import UUID

from django.conf import settings
from django.urls import reverse

# The agent behind addresses that name none.
FRONT_DOOR = "assistant"


def rpc_url(slug: str = "") -> str:
    """Where JSON-RPC for this agent is answered; without a slug, for the front door."""
    return absolute(reverse("a2a-agent", args=[slug]) if slug else reverse("a2a"))


def file_url(file_id: UUID | str) -> str:
    """Where the bytes of a stored file are, for whoever may see it."""
    return absolute(reverse("file", args=[file_id]))


def absolute(path: str) -> str:
    """A path of ours as others reach it."""
    url: str = settings.BUREAU_PUBLIC_URL
    return url + path
