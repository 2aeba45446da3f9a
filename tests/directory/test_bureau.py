"""Bureau as its own remote agent: the client and the probe against a running server and worker."""

import pytest
from django.core.management import call_command

from directory import calls
from directory.credentials import Secret
from directory.enrolment import add_remote_agent, refresh_agent
from directory.probe import probe_agent
from directory.services import create_api_client
from directory.wire import Outgoing

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]


@pytest.fixture
def bureau(web_process, worker_process):
    call_command("seed", verbosity=0)
    worker_process("--threads", "2")
    return web_process().url


def test_it_can_be_added_asked_and_probed(bureau):
    _, key = create_api_client("neighbour")
    agent = add_remote_agent(f"{bureau}/a2a/echo/", slug="neighbour", secret=Secret("bearer", key))
    assert (agent.url, agent.protocol_version) == (f"{bureau}/a2a/echo/", "1.0")
    assert refresh_agent(agent) is None
    task = calls.send(agent, Outgoing([{"text": "Hello there"}], message_id=""), wait=True)
    assert (task.state, task.parts) == ("completed", [{"text": "Hello there"}])
    assert calls.get_task(agent, task.id).artifacts == task.artifacts
    found, _ = calls.list_tasks(agent)
    assert [item.id for item in found] == [task.id]
    result = probe_agent(agent)
    failed = [check for check in result.checks if check["outcome"] == "failed"]
    assert (result.score, failed) == (100, [])
