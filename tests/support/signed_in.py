"""Fixtures of whoever tests pages with Django's test client: the cast, signed in, and a mission of Alice's.

(Models can be imported only once Django is set up.)
"""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client


@pytest.fixture
def agent(db: None) -> Any:
    from tests.support.people import make_agent

    return make_agent()


def _user(name: str, **fields: Any) -> Any:
    from tests.support.people import make_user

    return make_user(name, **fields)


@pytest.fixture
def alice(db: None) -> Any:
    return _user("alice")


@pytest.fixture
def bob(db: None) -> Any:
    return _user("bob")


@pytest.fixture
def olga(db: None) -> Any:
    return _user("olga", is_staff=True)


def _signed_in(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def as_alice(alice: Any) -> Client:
    return _signed_in(alice)


@pytest.fixture
def as_bob(bob: Any) -> Client:
    return _signed_in(bob)


@pytest.fixture
def as_olga(olga: Any) -> Client:
    return _signed_in(olga)


@pytest.fixture
def claim(alice: Any, agent: Any) -> Any:
    """A mission of Alice's that is being worked on."""
    from tests.support.people import start

    return start(alice, agent)
