"""Signing in: guesses at a password are counted, on the pages and in the admin alike, by all web processes together."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import redis
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from tasks import wakeups

TRIES = 10
WINDOW_SECONDS = 300


class GuardedBackend(ModelBackend):
    """Django's, but for so many wrong passwords of one user name in a while; then the right one is refused, too.

    User names that nobody has are counted as well, so this tells no one who is there. While Redis is away, nothing
    is counted.
    """

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:
        if not username or password is None:
            return None
        if _count(username) > TRIES:
            raise PermissionDenied
        user = super().authenticate(request, username, password, **kwargs)
        if user is not None:
            _forget(username)
        return user


def minutes_shut(username: str) -> int:
    """For how many more minutes this user name is not let in; 0: it may try."""
    try:
        with wakeups.client().pipeline() as pipeline:
            pipeline.get(_key(username))
            pipeline.ttl(_key(username))
            count, seconds = pipeline.execute()
    except redis.RedisError:
        return 0
    return math.ceil(max(seconds, 1) / 60) if int(count or 0) > TRIES else 0


def _count(username: str) -> int:
    """Counted before the password is looked at, so that guesses side by side count as well."""
    try:
        with wakeups.client().pipeline() as pipeline:
            # The time runs from the first guess on. In one transaction, so no crash leaves a count without an end.
            pipeline.set(_key(username), 0, ex=WINDOW_SECONDS, nx=True)
            pipeline.incr(_key(username))
            _, count = pipeline.execute()
    except redis.RedisError:
        return 0
    return int(count)


def _forget(username: str) -> None:
    try:
        wakeups.client().delete(_key(username))
    except redis.RedisError:
        return


def _key(username: str) -> str:
    return f"bureau:sign-in:{hashlib.sha256(username.strip().casefold().encode()).hexdigest()}"
