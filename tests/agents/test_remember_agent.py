"""`remember_agent`: operators only, after a yes to exactly that address, and a refusal changes nothing."""

import pytest
from django.contrib.auth.models import Permission, User

from agents.conversation import request_from_text
from agents.models import ToolCall
from agents.outcomes import Blocked, Error, Ok, Rejected
from agents.runtime import as_state, drain
from agents.tools.catalog import tools
from directory.identity import GRANTABLE, SCOPES, Caller
from directory.models import Agent, CardRevision
from directory.services import create_api_client, revoke_api_client
from tasks.content import Incoming
from tasks.models import Task
from tasks.results import finish
from tasks.services import send_message
from tests.support.messages_api import Reply
from tests.support.remote_agents import remote_agent

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def loopback_allowed(settings):
    settings.BUREAU_OUTBOUND_ALLOW = ("127.0.0.0/8",)


@pytest.fixture
def remote():
    with remote_agent(name="Parrot") as agent:
        yield agent


@pytest.fixture
def olga(db):
    return User.objects.create(pk=301, username="olga", is_staff=True, is_superuser=True)


@pytest.fixture
def as_caller(begin):
    """Lets what comes in be from this caller."""

    def be(caller):
        begin.caller = caller
        return caller

    return be


@pytest.fixture
def as_olga(olga, as_caller):
    return as_caller(Caller.from_user(olga))


def nothing_was_added():
    return not (Agent.objects.filter(kind="remote").exists() or CardRevision.objects.exists())


@pytest.mark.parametrize("slug", ["assistant", "directory"])
@pytest.mark.parametrize("form", [':tool remember_agent {{"url": "{}"}}', "remember the agent at {}"])
def test_an_operator_is_asked_and_then_it_is_added(run, follow_up, as_olga, remote, slug, form):
    asked = run(slug, form.format(remote.url))
    assert isinstance(asked, Blocked)
    assert f"Add the agent at {remote.url} to the directory" in asked.why
    assert not remote.requests
    assert nothing_was_added()
    done = follow_up(asked, "yes")
    assert isinstance(done, Ok)
    assert done.message == "Parrot is in the directory now, as parrot."
    assert done.artifacts[0].parts[1]["data"]["skills"] == [{"id": "echo-1", "name": "Echo 1"}]
    assert not Agent.objects.get(slug="parrot").is_published
    assert CardRevision.objects.get().decided_by == as_olga.principal


def test_a_no_is_a_no(run, follow_up, as_olga, remote):
    refused = follow_up(run("assistant", f"add agent {remote.url}"), "no")
    assert (refused.error_class, remote.requests) == ("not_confirmed", [])
    assert nothing_was_added()


def test_a_yes_holds_for_that_address_only(run, follow_up, as_olga, remote):
    first = run("assistant", f"add agent {remote.url}")
    changed = follow_up(first, f"add agent {remote.url}/rpc")
    assert isinstance(changed, Blocked)
    assert f"Add the agent at {remote.url}/rpc to the directory" in changed.why
    assert changed.about["digest"] != first.about["digest"]
    assert not remote.requests
    assert nothing_was_added()


def test_people_are_refused_before_they_are_asked(run, as_caller, remote):
    as_caller(Caller.from_user(User.objects.create(username="alice")))
    refused = run("assistant", f"remember the agent at {remote.url}")
    assert isinstance(refused, Rejected)
    assert "Only an operator may have agents remembered" in refused.reason
    assert not remote.requests
    assert nothing_was_added()


@pytest.mark.parametrize("principal", ["anonymous", "token:olga", "user:301", "user:x", "client:301", "client:"])
def test_nobody_is_an_operator_by_name_alone(run, as_caller, remote, principal):
    as_caller(Caller(principal, "olga", is_operator=True))
    assert isinstance(run("assistant", f"remember the agent at {remote.url}"), Rejected)
    assert nothing_was_added()


def test_an_operator_who_is_none_any_more_is_refused_in_spite_of_the_yes(run, follow_up, as_olga, olga, remote):
    asked = run("assistant", f"remember the agent at {remote.url}")
    User.objects.update(is_staff=False)
    assert isinstance(follow_up(asked, "yes"), Rejected)
    assert not remote.requests
    assert nothing_was_added()


# In no transaction: a turn that takes its time is looked at by another thread, which would not find its task.
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_superuser", [False, True])
def test_who_answers_for_an_operator_has_to_be_allowed_it_too(run, as_olga, remote, is_superuser):
    rita = User.objects.create(username="rita", is_staff=True, is_superuser=is_superuser)
    may_answer = Permission.objects.get(codename="change_task")
    rita.user_permissions.add(may_answer)
    blocked = run("directory", f"remember the agent at {remote.url}")
    turn = run.turn
    state, message, _ = as_state(blocked)
    finish(turn.claim, state, message=message)
    question = Task.objects.get().status_message["messageId"]
    yes = Incoming.from_text("yes")
    send_message(Caller.from_user(rita), turn.agent, yes, task_id=turn.claim.task_id, answering=question)
    drain("default")
    assert Task.objects.get().state == ("completed" if is_superuser else "rejected")
    assert Agent.objects.filter(slug="parrot").exists() is is_superuser


def test_rights_that_are_lost_in_the_last_moment_are_lost(begin, as_olga, remote):
    turn = begin("assistant", "hello")
    User.objects.update(is_active=False)
    with pytest.raises(Exception, match="Only an operator"):
        tools()["remember_agent"].run(turn, tools()["remember_agent"].check({"url": remote.url}))
    assert nothing_was_added()


@pytest.mark.parametrize(("scopes", "may"), [(SCOPES, False), (GRANTABLE, True)])
def test_a_program_needs_the_scope(run, follow_up, as_caller, remote, scopes, may):
    client, _ = create_api_client("program", scopes=scopes)
    as_caller(Caller.from_client(client))
    outcome = run("assistant", f"remember the agent at {remote.url}")
    assert isinstance(outcome, Blocked if may else Rejected)
    if may:
        assert isinstance(follow_up(outcome, "yes"), Ok)
    assert nothing_was_added() != may


def test_a_revoked_key_has_no_scope(run, follow_up, as_caller, remote):
    client, _ = create_api_client("program", scopes=GRANTABLE)
    as_caller(Caller.from_client(client))
    asked = run("assistant", f"remember the agent at {remote.url}")
    revoke_api_client(client)
    assert isinstance(follow_up(asked, "yes"), Rejected)
    assert nothing_was_added()


@pytest.mark.parametrize(
    "url", ["http://10.0.0.1/", "http://169.254.169.254/", "file:///etc/passwd", "http://[fd00::1]/"]
)
def test_an_address_inside_is_refused_before_anybody_is_asked(run, as_olga, url):
    outcome = run("assistant", f':tool remember_agent {{"url": "{url}"}}')
    assert isinstance(outcome, Error)
    assert "Nothing was changed." in outcome.message
    assert nothing_was_added()


def test_what_is_no_agent_is_said_to_be_none(run, follow_up, as_olga):
    with remote_agent(card_paths=()) as remote:
        outcome = follow_up(run("assistant", f"remember the agent at {remote.url}"), "yes")
    assert "There is no agent card at" in outcome.message
    assert nothing_was_added()


def test_one_that_is_known_stays_as_it_is(run, follow_up, as_olga, remote):
    for _ in range(2):
        outcome = follow_up(run("assistant", f"remember the agent at {remote.url}"), "yes")
    assert outcome.message == "That agent is in the directory already, as parrot."
    assert Agent.objects.filter(kind="remote").count() == 1


def test_a_name_is_kept_and_a_credential_is_asked_for(run, follow_up, as_olga):
    with remote_agent(key="k") as remote:
        outcome = follow_up(run("assistant", f"remember the agent at {remote.url} as polly"), "yes")
    assert "as polly. It wants API key in X-API-Key" in outcome.message


def test_the_act_is_on_record(run, follow_up, as_olga, remote):
    follow_up(run("assistant", f"remember the agent at {remote.url}"), "yes")
    call = ToolCall.objects.get()
    assert (call.tool, call.state, call.params["url"]) == ("remember_agent", "succeeded", remote.url)


def test_a_model_may_choose_it_and_the_same_is_asked(run, follow_up, as_olga, model, staged, remote):
    model.add(Reply(match="You decide what happens", json={"decision": "local", "reason": ""}, times=0))
    model.add(Reply(json={"call": {"tool": "remember_agent", "params": {"url": remote.url}}, "confidence": 0.8}))
    asked = run("assistant", f"Please get acquainted with whoever lives at {remote.url}")
    assert isinstance(asked, Blocked)
    assert nothing_was_added()
    assert isinstance(follow_up(asked, "yes"), Ok)


URL = "https://agent.example.org/a2a"


@pytest.mark.parametrize(
    ("text", "params"),
    [
        (f"remember the agent at {URL}", {"url": URL}),
        (f"Please remember this agent: {URL}.", {"url": URL}),
        (f"add agent {URL}", {"url": URL}),
        (f"Add a new remote agent by its URL {URL}", {"url": URL}),
        (f"register the agent at {URL} as parrot", {"url": URL, "name": "parrot"}),
        (f"add the agent at {URL} to the directory", {"url": URL}),
        (f"запам'ятай агента за адресою {URL}", {"url": URL}),
        (f"Додай нового агента {URL} як папуга", {"url": URL, "name": "папуга"}),
        ("remember the milk", None),
        (f"summarise {URL}", None),
        (f"ask the agent at {URL} for a joke", None),
        ("add agent ftp://example.org", None),
    ],
)
def test_its_forms_are_read_exactly(text, params):
    assert tools()["remember_agent"].parse(request_from_text(text)) == params


def test_without_an_address_it_asks_for_one(run, follow_up, as_olga, remote):
    asked = run("assistant", "add a new agent")
    assert asked.questions == ["At which address (URL) is the agent?"]
    again = follow_up(asked, f"It is at {remote.url}")
    assert f"Add the agent at {remote.url}" in again.why


def test_a_step_of_a_plan_is_refused_and_asked_about_alike(begin, as_olga, remote):
    from agents.orchestration.steps import Worker
    from tasks.models import SubPlan, Subtask

    def step_of(turn):
        plan = SubPlan.objects.create(mission_id=turn.claim.task_id, key="add", goal="Add it", role="writer")
        Subtask.objects.create(
            sub_plan=plan, position=1, instruction="Add it", tool="remember_agent", params={"url": remote.url}
        )
        return Worker(turn, plan, {"remember_agent": tools()["remember_agent"]}).work()

    asked = step_of(begin("assistant", "add it as a part of a plan"))
    assert f"Add the agent at {remote.url}" in asked.why
    User.objects.update(is_staff=False)
    refused = step_of(begin("assistant", "and once more"))
    assert refused.error_class == "declined"
    assert not remote.requests
    assert nothing_was_added()
