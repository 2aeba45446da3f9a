"""The description of HTTP+JSON for programs, and as a page for people: neither needs anything from elsewhere."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from bureau.a2a.addresses import absolute
from bureau.a2a.cards import MAX_AGE


@require_safe
def openapi(request: HttpRequest) -> HttpResponse:
    """The OpenAPI document."""
    response = JsonResponse(_document())
    response["Cache-Control"] = f"public, max-age={MAX_AGE}"
    # It is public, and readers of such documents run in browsers.
    response["Access-Control-Allow-Origin"] = "*"
    return response


@require_safe
def reference(request: HttpRequest) -> HttpResponse:
    """The same as a page."""
    found = _document()
    operations = [
        {"verb": verb.upper(), "path": path, "body": _name(_body(operation)), "answer": _answer(operation), **operation}
        for path, verbs in found["paths"].items()
        for verb, operation in verbs.items()
    ]
    schemas = [
        {"name": name, "fields": list(_fields(schema)), "is_choice": "oneOf" in schema}
        for name, schema in found["components"]["schemas"].items()
    ]
    context = {"info": found["info"], "operations": operations, "schemas": schemas, "base": absolute("/a2a")}
    return render(request, "dashboard/reference.html", context)


@lru_cache(maxsize=1)
def _document() -> dict[str, Any]:
    # Not before it is asked for: what makes it takes a while to load.
    from bureau.a2a.openapi import document

    return document()


def _body(operation: dict[str, Any]) -> Any:
    content = operation.get("requestBody", {}).get("content", {})
    return content.get("application/json", {}).get("schema")


def _answer(operation: dict[str, Any]) -> str:
    (media_type, content), *_ = operation["responses"]["200"]["content"].items()
    return "StreamResponse" if media_type == "text/event-stream" else _name(content["schema"])


def _name(schema: Any) -> str:
    """The schema that this one refers to, or is the whole of with less required; empty for none."""
    if not schema:
        return ""
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[1]
    return str(schema.get("title", ""))


def _fields(schema: dict[str, Any]) -> Any:
    required = schema.get("required", [])
    for name, field in schema.get("properties", {}).items():
        item = field.get("items", field)
        shown = {"name": name, "is_list": "items" in field, "is_required": name in required}
        kind = item.get("format") or item.get("type", "any")
        yield shown | {"schema": _name(item), "type": kind, "words": item.get("enum", [])}
