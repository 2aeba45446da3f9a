"""A task of Alice's, and a worker's claim on it. (Models can be imported only once Django is set up.)"""

import pytest


@pytest.fixture
def agent(db):
    from directory import services
    from directory.models import Agent

    services.forget_agents()
    return Agent.objects.create(slug="worker-bee", name="Worker bee", handler="echo")


@pytest.fixture
def sent(agent):
    from tasks.content import Incoming
    from tasks.services import send_message
    from tests.support.cast import ALICE

    return send_message(ALICE, agent, Incoming.from_text("Hello there"))


@pytest.fixture
def claim(sent):
    from tasks.claims import claim_next

    found = claim_next("default", "test-worker")
    assert found is not None
    assert found.task_id == sent.task_id
    return found
