"""Addresses of the protocol. A POST is answered with and without the slash at the end: a redirect would lose it."""

from __future__ import annotations

from django.urls import path, re_path

from bureau.a2a.cards import card, old_card
from bureau.a2a.files import download
from bureau.a2a.replies import not_found
from bureau.a2a.rest import rest
from bureau.a2a.views import rpc
from bureau.a2a.wellknown import agents, api_catalog, jwks

CARD = ".well-known/agent-card.json"
OLD_CARD = ".well-known/agent.json"

urlpatterns = [
    path("a2a/", rpc, name="a2a"),
    path("a2a", rpc),
    path(CARD, card, name="front-card"),
    path(".well-known/api-catalog", api_catalog, name="api-catalog"),
    path(".well-known/agents.json", agents, name="agents"),
    path(".well-known/jwks.json", jwks, name="jwks"),
    path(f"a2a/{CARD}", card),
    path(OLD_CARD, old_card),
    path(f"a2a/{OLD_CARD}", old_card),
    # Without these, they would be taken for agents of that name.
    path("a2a/tasks", rest, {"path": "tasks"}),
    path("a2a/extendedAgentCard", rest, {"path": "extendedAgentCard"}),
    path("a2a/<slug:slug>/", rpc, name="a2a-agent"),
    path("a2a/<slug:slug>", rpc),
    path(f"a2a/<slug:slug>/{CARD}", card, name="agent-card"),
    path(f"a2a/<slug:slug>/{OLD_CARD}", old_card),
    path("files/<uuid:file_id>/", download, name="file"),
    # A `path` would end at a line break, which an id may hold.
    re_path(r"^a2a/(?P<path>(?s:.+))\Z", rest),
    path("files/<path:rest>", not_found),
    path(".well-known/<path:rest>", not_found),
]
