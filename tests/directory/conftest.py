"""What the tests of the directory share: loopback is allowed, as in the embedded mode, and an agent to talk to."""

import pytest


@pytest.fixture(autouse=True)
def loopback_allowed(settings):
    """PostgreSQL runs are not embedded, and would not allow it."""
    settings.BUREAU_OUTBOUND_ALLOW = ("127.0.0.0/8", "::1")


@pytest.fixture
def remote():
    # Models are there only once Django is set up, which is after this module is read.
    from tests.support.remote_agents import remote_agent

    with remote_agent() as agent:
        yield agent


@pytest.fixture
def agent(remote):
    from directory.enrolment import add_remote_agent

    return add_remote_agent(remote.url)
