"""Agent cards: read in any version's form, kept in that of A2A 1.0, compared, and asked what they offer.

No network and no database. A card, here, is ProtoJSON of A2A 1.0's `AgentCard` as a dict, cleaned.
"""

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from a2a.client.card_resolver import parse_agent_card
from a2a.types.a2a_pb2 import AgentCard
from django.utils.text import slugify
from google.protobuf.json_format import MessageToDict, ParseError

from directory.exceptions import CardInvalid, NoCommonInterface
from directory.untrusted import clean_card, clean_line, clean_text

JSONRPC = "JSONRPC"
REST = "HTTP+JSON"
BINDINGS = (JSONRPC, REST)
VERSIONS = ("1.0", "0.3")
MAX_URL = 500
MAX_TENANT = 100

NAME_LENGTH = 120
DESCRIPTION_LENGTH = 2000
EXAMPLE_LENGTH = 500
TAG_LENGTH = 50
SKILL_ID_LENGTH = 64
LIST_LENGTH = 20

URL, SKILLS, SECURITY = "url", "skills", "security"


@dataclass(frozen=True, slots=True)
class Interface:
    """Where and how an agent is spoken to. `version` is the one we would speak there, "" for none."""

    url: str
    binding: str
    version: str
    tenant: str = ""
    claimed: str = ""

    def __str__(self) -> str:
        tenant = f", tenant {self.tenant}" if self.tenant else ""
        return f"{self.url} ({self.binding} {self.claimed or self.version}{tenant})"


@dataclass(frozen=True, slots=True)
class AuthNeed:
    """One way to be let in. `kind`: api_key, bearer, basic, oauth2, openid, mtls or other."""

    scheme: str
    kind: str
    header: str = ""
    token_url: str = ""
    scopes: tuple[str, ...] = ()

    def __str__(self) -> str:
        words = {
            "api_key": f"API key in {self.header}",
            "bearer": "bearer token",
            "basic": "user name and password",
            "oauth2": f"OAuth 2{f' ({self.token_url})' if self.token_url else ''}",
            "openid": "OpenID Connect",
            "mtls": "client certificate",
        }
        return words.get(self.kind, self.scheme)


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between two cards; `ground` is url, skills or security where an operator has to look."""

    text: str
    ground: str = ""


def parse(data: Any) -> AgentCard:
    """A decoded card of 1.0, 0.3 or before, as a message of 1.0. Raises CardInvalid."""
    if not isinstance(data, dict):
        raise CardInvalid("The card is not a JSON object.")
    try:
        # It changes what it is given.
        card = parse_agent_card(copy.deepcopy(data))
    except (ParseError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise CardInvalid(f"The card cannot be read: {clean_line(str(error), 200)}") from None
    if not clean_line(card.name, NAME_LENGTH):
        raise CardInvalid("The card has no name.")
    if not card.supported_interfaces:
        raise CardInvalid("The card names no address to speak to.")
    for interface in card.supported_interfaces:
        if len(interface.url) > MAX_URL or len(interface.tenant) > MAX_TENANT:
            raise CardInvalid(
                f"The card names an address of more than {MAX_URL} characters, or a tenant of {MAX_TENANT}."
            )
    return card


def as_dict(message: AgentCard) -> dict[str, Any]:
    """The card in the form that is kept."""
    card: dict[str, Any] = clean_card(MessageToDict(message), max_text=DESCRIPTION_LENGTH)
    return card


def looks_like_card(data: Any) -> bool:
    """Whether this JSON may be meant as a card at all."""
    return isinstance(data, dict) and "name" in data and ("url" in data or "supportedInterfaces" in data)


def digest(card: Mapping[str, Any]) -> str:
    """SHA-256 of everything but the signatures, which may differ each time although nothing changed."""
    unsigned = {key: value for key, value in card.items() if key != "signatures"}
    return hashlib.sha256(json.dumps(unsigned, sort_keys=True).encode()).hexdigest()


# --- Interfaces ----------------------------------------------------------------------------------


def interfaces(card: Mapping[str, Any]) -> list[Interface]:
    """All that the card offers, in its order of preference."""
    return [
        Interface(
            url=item.get("url", ""),
            binding=item.get("protocolBinding", "").upper(),
            version=_spoken(item.get("protocolVersion", "")),
            tenant=item.get("tenant", ""),
            claimed=item.get("protocolVersion", ""),
        )
        for item in card.get("supportedInterfaces", [])
    ]


def _spoken(version: str) -> str:
    """The version of ours that fits; 0.2 had the messages of 0.3 already."""
    major, _, rest = version.strip().partition(".")
    minor = rest.partition(".")[0]
    if major == "1" or not version.strip():
        return "1.0"
    return "0.3" if major == "0" and minor in {"2", "3"} else ""


def usable(card: Mapping[str, Any]) -> list[Interface]:
    """Those that we can speak, best first: 1.0 before 0.3, JSON-RPC before REST, then as the card has them."""
    found = [item for item in interfaces(card) if item.version and item.binding in BINDINGS]
    return sorted(found, key=lambda item: (VERSIONS.index(item.version), BINDINGS.index(item.binding)))


def best_interface(card: Mapping[str, Any]) -> Interface:
    """Raises NoCommonInterface."""
    found = usable(card)
    if not found:
        offered = ", ".join(f"{item.binding} {item.claimed}".strip() for item in interfaces(card))
        raise NoCommonInterface(
            f"The agent speaks {clean_line(offered, 200)}; spoken here are JSONRPC and HTTP+JSON, 1.0 and 0.3."
        )
    return found[0]


def names(card: Mapping[str, Any], url: str) -> bool:
    """Whether the card has an interface at this address."""
    return any(item.url.rstrip("/") == url.rstrip("/") for item in interfaces(card))


def capability(card: Mapping[str, Any], name: str) -> bool:
    """Whether the card claims "streaming", "pushNotifications" or "extendedAgentCard"."""
    return bool(card.get("capabilities", {}).get(name))


# --- Skills and security -------------------------------------------------------------------------


def skills(card: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Values for `Skill` rows, with ids that are slugs and unique."""
    found: dict[str, dict[str, Any]] = {}
    for item in card.get("skills", []):
        wanted = slugify(item.get("id") or item.get("name") or "skill")[:SKILL_ID_LENGTH] or "skill"
        skill_id, number = wanted, 2
        while skill_id in found:
            skill_id = f"{wanted[: SKILL_ID_LENGTH - 4]}-{number}"
            number += 1
        found[skill_id] = {
            "skill_id": skill_id,
            "name": clean_line(item.get("name", ""), NAME_LENGTH) or skill_id,
            "description": clean_text(item.get("description", ""), DESCRIPTION_LENGTH),
            "tags": _texts(item.get("tags", []), TAG_LENGTH),
            "examples": _texts(item.get("examples", []), EXAMPLE_LENGTH),
        }
    return list(found.values())


def _texts(values: list[str], length: int) -> list[str]:
    return [text for value in values[:LIST_LENGTH] if (text := clean_line(value, length))]


def auth_needs(card: Mapping[str, Any]) -> list[AuthNeed]:
    """The ways to be let in, any of which will do; empty where nothing is asked."""
    schemes = card.get("securitySchemes", {})
    found = []
    for requirement in card.get("securityRequirements", []):
        for name, scopes in requirement.get("schemes", {}).items():
            need = _need(name, schemes.get(name, {}), tuple(scopes.get("list", [])))
            if need not in found:
                found.append(need)
    return found


def _need(name: str, scheme: Mapping[str, Any], scopes: tuple[str, ...]) -> AuthNeed:
    kind: str = next(iter(scheme), "")
    details: Mapping[str, Any] = scheme.get(kind, {})
    match kind:
        case "apiKeySecurityScheme":
            place = details.get("location", "header")
            header = details.get("name", "")
            return AuthNeed(name, "api_key", header) if place == "header" else AuthNeed(f"API key in {place}", "other")
        case "httpAuthSecurityScheme":
            word = details.get("scheme", "").lower()
            return AuthNeed(name, word if word in {"bearer", "basic"} else "other")
        case "oauth2SecurityScheme":
            flow = details.get("flows", {}).get("clientCredentials", {})
            return AuthNeed(name, "oauth2", token_url=flow.get("tokenUrl", ""), scopes=scopes)
        case "openIdConnectSecurityScheme":
            return AuthNeed(name, "openid")
        case "mtlsSecurityScheme":
            return AuthNeed(name, "mtls")
        case _:
            return AuthNeed(name, "other")


# --- Differences ---------------------------------------------------------------------------------

_PLAIN = {
    "name": "name",
    "description": "description",
    "version": "version",
    "provider": "provider",
    "documentationUrl": "documentation address",
    "iconUrl": "icon",
    "capabilities": "capabilities",
    "defaultInputModes": "input media types",
    "defaultOutputModes": "output media types",
}


def diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """What differs, in sentences for an operator: addresses first, then security, skills and the rest."""
    return [
        *_interface_changes(before, after),
        *_security_changes(before, after),
        *_skill_changes(before, after),
        *(
            Change(f"The {word} changed from {_show(before.get(key))} to {_show(after.get(key))}.")
            for key, word in _PLAIN.items()
            if before.get(key) != after.get(key)
        ),
    ]


def _interface_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    old, new = interfaces(before), interfaces(after)
    places = {(item.url, item.tenant) for item in old}
    for item in new:
        if item not in old:
            # A new version or binding at an address that was accepted takes nothing anywhere else.
            yield Change(f"New interface: {item}.", "" if (item.url, item.tenant) in places else URL)
    left = {(item.url, item.tenant) for item in new}
    for item in old:
        if item not in new:
            yield Change(f"Interface gone: {item}.", "" if (item.url, item.tenant) in left else URL)


def _security_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    old, new = before.get("securitySchemes", {}), after.get("securitySchemes", {})
    for name in sorted({*old, *new}):
        if name not in new:
            yield Change(f"Security scheme gone: {name}.", SECURITY)
        elif name not in old:
            yield Change(f"New security scheme: {name} ({_show(new[name])}).", SECURITY)
        elif old[name] != new[name]:
            yield Change(f"The security scheme {name} changed from {_show(old[name])} to {_show(new[name])}.", SECURITY)
    if before.get("securityRequirements") != after.get("securityRequirements"):
        yield Change(f"It asked for {_ways(before)}, and now asks for {_ways(after)}.", SECURITY)


def _ways(card: Mapping[str, Any]) -> str:
    return " or ".join(map(str, auth_needs(card))) or "no credential"


def _skill_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    old = {item.get("id", ""): item for item in before.get("skills", [])}
    new = {item.get("id", ""): item for item in after.get("skills", [])}
    for skill_id in [*old, *(key for key in new if key not in old)]:
        if skill_id not in new:
            yield Change(f"Skill gone: {skill_id} ({_show(old[skill_id].get('name'))}).", SKILLS)
        elif skill_id not in old:
            item = new[skill_id]
            yield Change(
                f"New skill: {skill_id} ({_show(item.get('name'))}): {_show(item.get('description'))}.", SKILLS
            )
        else:
            was, now = old[skill_id], new[skill_id]
            for key in sorted({*was, *now}):
                if was.get(key) != now.get(key):
                    yield Change(
                        f"The {key} of skill {skill_id} changed from {_show(was.get(key))} to {_show(now.get(key))}.",
                        SECURITY if key == "securityRequirements" else SKILLS,
                    )


def _show(value: Any) -> str:
    """A value on one line, quoted where it is text; "nothing" for what is not there."""
    if value in (None, "", [], {}):
        return "nothing"
    text = f"“{value}”" if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return clean_line(text, 160)
