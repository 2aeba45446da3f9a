"""How many requests one caller may make: counted in Redis, by all web processes together."""

from __future__ import annotations

import time

import redis
from django.conf import settings
from django.http import HttpRequest
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from tasks import wakeups

MINUTE = 60


class CallerThrottle(BaseThrottle):
    """BUREAU_RATE_PER_MINUTE requests in each minute by the clock. While Redis is away, any number."""

    def allow_request(self, request: HttpRequest | Request, view: object) -> bool:
        minute = int(time.time() // MINUTE)
        key = f"bureau:rate:{request.user.pk}:{minute}"
        try:
            count = wakeups.client().incr(key)
            if count == 1:
                wakeups.client().expire(key, 2 * MINUTE)
        except redis.RedisError:
            return True
        return count <= settings.BUREAU_RATE_PER_MINUTE

    def wait(self) -> float:
        """Seconds until the next minute."""
        return MINUTE - time.time() % MINUTE
