"""Agent cards, made from the rows of the directory: public, cached, and readable for 0.3 clients, too."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0, TransportProtocol
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.cache import get_conditional_response
from django.utils.http import http_date

from bureau.a2a import replies
from bureau.a2a.addresses import FRONT_DOOR, absolute, rpc_url
from bureau.a2a.card_signing import CardKey, card_key, sign, sign_document
from bureau.a2a.extensions import declared
from directory.exceptions import AgentNotFound
from directory.identity import Caller
from directory.models import Agent, Skill
from directory.services import get_agent
from tasks.aio import in_db

MAX_AGE = 60
TEXT = "text/plain"


class Rendered(NamedTuple):
    """A card as it is sent, and since when it has been so."""

    body: bytes
    etag: str
    modified_at: datetime


_started_at = datetime.now(UTC)
_last_seen: dict[tuple[str, bool], Rendered] = {}


async def card(request: HttpRequest, slug: str = "", *, is_old: bool = False) -> HttpResponseBase:
    """The public card of that agent, or of the front door. Nothing of agents that are not published."""
    if request.method not in ("GET", "HEAD"):
        response: HttpResponse = replies.problem("A card is read by GET.", 405)
        response["Allow"] = "GET, HEAD"
        return response
    rendered = await in_db(_render, slug, is_old)
    if rendered is None:
        return replies.problem("There is no such agent.", 404)
    response = HttpResponse(rendered.body, content_type="application/json")
    response["Cache-Control"] = f"public, max-age={MAX_AGE}"
    response["ETag"] = rendered.etag
    response["Last-Modified"] = http_date(rendered.modified_at.timestamp())
    return get_conditional_response(request, rendered.etag, int(rendered.modified_at.timestamp()), response) or response


async def old_card(request: HttpRequest, slug: str = "") -> HttpResponseBase:
    """The same for clients of `tasks/send`."""
    return await card(request, slug, is_old=True)


def _render(slug: str, is_old: bool) -> Rendered | None:
    published = Agent.objects.filter(is_enabled=True, is_published=True).prefetch_related("skills")
    agent = published.filter(slug=slug or FRONT_DOOR).first()
    if agent is None:
        return None
    new = make_card(agent, rpc_url(slug))
    signer = None if is_old else card_key()
    body = json.dumps(_old(new) if is_old else _document(new)).encode()
    etag = f'"{hashlib.sha256(body + (signer.id.encode() if signer else b"")).hexdigest()[:32]}"'
    if signer:
        # Most signatures of the same card differ: what two processes send is equivalent, but not the same.
        etag = f"W/{etag}"
    key = (slug, is_old)
    known = _last_seen.get(key)
    if known is None or known.etag != etag:
        if signer:
            body = json.dumps(_signed(new, signer)).encode()
        # Skills and settings change a card without touching its row: then it is as new as this look at it.
        modified_at = datetime.now(UTC) if known else max(agent.updated_at, _started_at)
        known = _last_seen[key] = Rendered(body, etag, modified_at)
    return known


def _document(card: pb.AgentCard) -> dict[str, Any]:
    """The members of 1.0 and of 0.3 together."""
    found: dict[str, Any] = _without_defaults(agent_card_to_dict(card))
    return found


def _without_defaults(value: Any) -> Any:
    """What 0.3 writes out, and 1.0's canonical form leaves away: a card says nothing here by a false."""
    if isinstance(value, dict):
        return {name: _without_defaults(item) for name, item in value.items() if item is not False}
    return [_without_defaults(item) for item in value] if isinstance(value, list) else value


def _signed(card: pb.AgentCard, key: CardKey) -> dict[str, Any]:
    """The members with two signatures: over those of 1.0, and over all of them."""
    keys_url = absolute(reverse("jwks"))
    sign(card, key, keys_url)
    found = _document(card)
    return {**found, "signatures": [*found["signatures"], sign_document(found, key, keys_url)]}


def extended_card(caller: Caller, slug: str) -> pb.AgentCard:
    """The card for somebody who may call the agent. Raises AgentNotFound."""
    if not caller.may_call(slug or FRONT_DOOR):
        raise AgentNotFound
    card = make_card(get_agent(slug or FRONT_DOOR), rpc_url(slug))
    if signer := card_key():
        sign(card, signer, absolute(reverse("jwks")))
    return card


def make_card(agent: Agent, url: str) -> pb.AgentCard:
    """The card of an agent that is reached at `url`. Declares what is really there."""
    return pb.AgentCard(
        name=agent.name,
        description=agent.description or agent.name,
        version=agent.version,
        supported_interfaces=[
            pb.AgentInterface(url=url, protocol_binding=binding, protocol_version=version)
            for binding in (TransportProtocol.JSONRPC, TransportProtocol.HTTP_JSON)
            for version in (PROTOCOL_VERSION_1_0, PROTOCOL_VERSION_0_3)
        ],
        capabilities=pb.AgentCapabilities(
            streaming=True, push_notifications=True, extended_agent_card=True, extensions=declared()
        ),
        security_schemes={
            **_token_scheme(),
            "bearer": pb.SecurityScheme(
                http_auth_security_scheme=pb.HTTPAuthSecurityScheme(
                    scheme="bearer", description="An API key of this server."
                )
            ),
            "apiKey": pb.SecurityScheme(
                api_key_security_scheme=pb.APIKeySecurityScheme(
                    location="header", name="X-API-Key", description="An API key of this server."
                )
            ),
        },
        security_requirements=_requirements(),
        default_input_modes=agent.input_modes or [TEXT],
        default_output_modes=agent.output_modes or [TEXT],
        skills=[_skill(agent, skill) for skill in agent.skills.all()],
    )


def _old(card: pb.AgentCard) -> dict[str, Any]:
    """The card as it was before 0.2, for `bureau.a2a.legacy`."""
    schemes = {"authentication": {"schemes": ["bearer"]}} if card.security_requirements else {}
    return {
        "name": card.name,
        "description": card.description,
        "url": card.supported_interfaces[0].url,
        "version": card.version,
        "capabilities": {"streaming": True, "pushNotifications": False, "stateTransitionHistory": False},
        **schemes,
        "defaultInputModes": list(card.default_input_modes),
        "defaultOutputModes": list(card.default_output_modes),
        "skills": [
            {
                "id": skill.id,
                "name": skill.name,
                "description": skill.description,
                "tags": list(skill.tags),
                "examples": list(skill.examples),
            }
            for skill in card.skills
        ],
    }


def _requirements() -> list[pb.SecurityRequirement]:
    """Any of them; none where callers without a key are let in."""
    if settings.BUREAU_ALLOW_ANONYMOUS:
        return []
    names = ["bearer", "apiKey", *_token_scheme()]
    return [pb.SecurityRequirement(schemes={name: pb.StringList()}) for name in names]


def _token_scheme() -> dict[str, pb.SecurityScheme]:
    """Tokens of an issuer, where one is configured."""
    issuer = settings.BUREAU_JWT_ISSUER
    if not issuer:
        return {}
    words = f"A token that {issuer} issued for {settings.BUREAU_JWT_AUDIENCE}; its scopes say what it is good for."
    scheme = pb.HTTPAuthSecurityScheme(scheme="bearer", bearer_format="JWT", description=words)
    return {"token": pb.SecurityScheme(http_auth_security_scheme=scheme)}


def _skill(agent: Agent, skill: Skill) -> pb.AgentSkill:
    return pb.AgentSkill(
        id=skill.skill_id,
        name=skill.name,
        description=skill.description or skill.name,
        tags=skill.tags or [agent.role or agent.slug],
        examples=skill.examples,
    )
