"""The conformance probe: what a right agent scores, and what is found wrong with others."""

import asyncio

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from directory import probe
from directory.enrolment import add_remote_agent
from directory.exceptions import NotRemote
from directory.models import Agent, ProbeResult
from directory.probe import Check, probe_agent, score
from tests.support.remote_agents import REST, RPC, V03, V1, Executor, Slow, Talker, remote_agent, serve

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


def outcome(result, name):
    return next(check for check in result.checks if check["name"] == name)


@pytest.mark.parametrize(
    "interfaces", [((RPC, V1),), ((REST, V1),), ((RPC, V03),), ((RPC, V1), (REST, V1), (RPC, V03))]
)
def test_the_reference_scores_full_marks(interfaces):
    with remote_agent(interfaces=interfaces) as remote:
        result = probe_agent(add_remote_agent(remote.url))
    failed = [check for check in result.checks if check["outcome"] == "failed"]
    assert (result.score, failed) == (100, [])
    for binding, version in interfaces:
        claimed = version if interfaces[0][1] == V1 else "0.3.0"
        assert outcome(result, f"speaks {binding} {claimed}")["outcome"] == "passed"
    assert outcome(result, "get")["reason"] == "The same task."
    assert result.seconds > 0


def test_a_version_that_is_claimed_and_not_spoken_is_found():
    with remote_agent() as remote:
        claim = {"url": f"{remote.url}/nowhere", "protocolBinding": RPC, "protocolVersion": V03}
        remote.card["supportedInterfaces"].append(claim)
        result = probe_agent(add_remote_agent(remote.url))
    assert outcome(result, "speaks JSONRPC 0.3")["outcome"] == "failed"
    assert 50 < result.score < 100


def test_a_version_that_is_spoken_and_not_claimed_is_told():
    """A server of both versions at one address, whose card names one."""
    with remote_agent(interfaces=((RPC, V1), (RPC, V03))) as remote:
        both = f"{remote.url}/rpc03"
        remote.card["supportedInterfaces"] = [{"url": both, "protocolBinding": RPC, "protocolVersion": V03}]
        result = probe_agent(add_remote_agent(remote.url))
    assert outcome(result, "speaks JSONRPC 1.0, unclaimed")["outcome"] == "skipped"


def test_an_agent_without_tasks_is_not_blamed_for_it():
    with remote_agent(Talker()) as remote:
        result = probe_agent(add_remote_agent(remote.url))
    assert outcome(result, "get")["outcome"] == outcome(result, "cancel")["outcome"] == "skipped"
    assert outcome(result, "stream")["outcome"] == "passed"


def test_an_agent_that_never_answers(monkeypatch):
    monkeypatch.setattr(probe, "CALL_SECONDS", 0.3)
    slow = Slow()
    with remote_agent(slow) as remote:
        result = probe_agent(add_remote_agent(remote.url))
        slow.release.set()
    assert "within 0.3 seconds" in outcome(result, "speaks JSONRPC 1.0")["reason"]
    assert outcome(result, "conversation")["outcome"] == "failed"
    assert result.score < 30


def test_a_task_that_goes_on_is_canceled():
    class Steady(Executor):
        """Ends what somebody waits for; what nobody waits for goes on until it is canceled."""

        async def execute(self, context, event_queue):
            self.goes_on = context.configuration.return_immediately
            await super().execute(context, event_queue)

        async def run(self, text, updater, *, is_first):
            if self.goes_on:
                await updater.start_work()
                await asyncio.Event().wait()
            await super().run(text, updater, is_first=is_first)

    with remote_agent(Steady()) as remote:
        result = probe_agent(add_remote_agent(remote.url))
    assert outcome(result, "cancel")["reason"] == "Canceled."
    assert result.score == 100


def test_an_agent_that_is_gone_scores_nothing():
    with remote_agent() as remote:
        agent = add_remote_agent(remote.url)
    result = probe_agent(agent)
    assert result.score == 0
    assert "could not be reached" in outcome(result, "card")["reason"]


def test_wrong_error_codes_are_found():
    async def rpc(request):
        return JSONResponse({"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "Computer says no"}})

    with serve(Starlette(routes=[Route("/", rpc, methods=["POST"])])) as url, remote_agent() as remote:
        agent = add_remote_agent(remote.url)
        remote.card["supportedInterfaces"] = [{"url": f"{url}/", "protocolBinding": RPC, "protocolVersion": V1}]
        result = probe_agent(agent)
    reason = outcome(result, "speaks JSONRPC 1.0")["reason"]
    assert reason == "The remote agent says: JSON-RPC Error -32000: Computer says no"
    assert result.score < 50


def test_a_card_that_lacks_something_is_found():
    with remote_agent() as remote:
        agent = add_remote_agent(remote.url)
        remote.card |= {"description": "", "skills": [{"id": "x", "name": "X"}]}
        result = probe_agent(agent)
    reason = outcome(result, "card")["reason"]
    assert reason == "Missing or empty: description, description of skill x, tags of skill x."


def test_only_the_last_results_are_kept(monkeypatch):
    monkeypatch.setattr(probe, "KEPT", 2)
    with remote_agent() as remote:
        agent = add_remote_agent(remote.url)
    results = [probe_agent(agent) for _ in range(3)]
    assert list(ProbeResult.objects.all()) == results[:0:-1]


def test_a_local_agent_is_not_probed():
    with pytest.raises(NotRemote):
        probe_agent(Agent.objects.create(slug="local", name="Local", handler="x"))
    assert not ProbeResult.objects.exists()


def test_the_score_counts_what_was_tried():
    checks = [Check("a", "passed", 30, ""), Check("b", "failed", 10, ""), Check("c", "skipped", 60, "")]
    assert score(checks) == 75
    assert score([Check("c", "skipped", 60, "")]) == 0
