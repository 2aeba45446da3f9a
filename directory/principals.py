"""A stored principal as the caller that it stands for now: what they may do at this moment, not when they asked."""

from dataclasses import replace

from django.contrib.auth import get_user_model

from directory.identity import Caller
from directory.models import ApiClient
from directory.services import live_clients

NOTHING: frozenset[str] = frozenset()


def caller_of(principal: str) -> Caller:
    """The caller behind a task's owner.

    A user who is inactive or gone, and a client whose key is revoked or has run out, may do nothing any more.
    What a token or nobody in particular may do is not on record: they are no operators.
    """
    kind, _, key = principal.partition(":")
    if kind == "user":
        user = get_user_model().objects.filter(pk=key, is_active=True).first() if key.isdecimal() else None
        return Caller.from_user(user) if user else Caller(principal, principal, scopes=NOTHING)
    if kind == "client":
        client = ApiClient.objects.filter(pk=key).first() if key.isdecimal() else None
        caller = Caller.from_client(client) if client else Caller(principal, principal)
        # Work that is under way goes on without the key, within the same bounds.
        return caller if client and live_clients().filter(pk=client.pk).exists() else replace(caller, scopes=NOTHING)
    return Caller(principal, principal)
