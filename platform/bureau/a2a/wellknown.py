"""Documents at well-known addresses for whoever looks around: who is here, where their APIs are, our public key."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse

from bureau.a2a import replies
from bureau.a2a.addresses import absolute, rpc_url
from bureau.a2a.card_signing import card_key
from bureau.a2a.cards import MAX_AGE
from directory.models import Agent
from tasks.aio import in_db

OPENAPI = "application/vnd.oai.openapi+json"
LINKSET = "application/linkset+json"


async def api_catalog(request: HttpRequest) -> HttpResponseBase:
    """RFC 9727: a link set of every published agent's API."""
    response = await _document(request, _catalog, f'{LINKSET};profile="https://www.rfc-editor.org/info/rfc9727"')
    # For who asks by HEAD (section 2).
    response["Link"] = f'<{absolute(reverse("api-catalog"))}>; rel="api-catalog"'
    return response


async def agents(request: HttpRequest) -> HttpResponseBase:
    """The published agents, in short; each has a card with the rest."""
    return await _document(request, _agents)


async def jwks(request: HttpRequest) -> HttpResponseBase:
    """The key that cards are signed with; an empty set when they are not."""
    return await _document(request, _keys)


async def _document(request: HttpRequest, make: Any, content_type: str = "application/json") -> HttpResponseBase:
    if request.method not in ("GET", "HEAD"):
        refused: HttpResponse = replies.problem("This is read by GET.", 405)
        refused["Allow"] = "GET, HEAD"
        return refused
    response = HttpResponse(json.dumps(await in_db(make)), content_type=content_type)
    response["Cache-Control"] = f"public, max-age={MAX_AGE}"
    return response


def _published() -> list[Agent]:
    found = Agent.objects.filter(is_enabled=True, is_published=True, kind=Agent.Kind.LOCAL)
    return list(found.prefetch_related("skills").order_by("slug"))


def _catalog() -> dict[str, Any]:
    found = _published()
    apis = [
        {
            "anchor": rpc_url(agent.slug),
            "service-desc": [{"href": absolute(reverse("openapi")), "type": OPENAPI}],
            "service-doc": [{"href": absolute(reverse("reference")), "type": "text/html"}],
            "service-meta": [{"href": _card(agent), "type": "application/json", "title": agent.name}],
        }
        for agent in found
    ]
    items = [{"href": rpc_url(agent.slug), "title": agent.name} for agent in found]
    return {"linkset": [{"anchor": absolute(reverse("api-catalog")), "item": items}, *apis]}


def _agents() -> dict[str, Any]:
    return {
        "agents": [
            {
                "name": agent.name,
                "description": agent.description,
                "version": agent.version,
                "url": rpc_url(agent.slug),
                "card": _card(agent),
                "skills": [
                    {
                        "id": skill.skill_id,
                        "name": skill.name,
                        "description": skill.description,
                        "tags": skill.tags,
                    }
                    for skill in agent.skills.all()
                ],
            }
            for agent in _published()
        ]
    }


def _keys() -> dict[str, Any]:
    key = card_key()
    return {"keys": [key.public] if key else []}


def _card(agent: Agent) -> str:
    return absolute(reverse("agent-card", args=[agent.slug]))
