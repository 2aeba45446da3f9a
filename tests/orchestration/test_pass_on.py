"""Whole requests that triage passes on to one agent: real servers, by rules and by a scripted model."""

import itertools
import re

import pytest
from django.utils import timezone

from agents import registry, runtime
from agents.authoring import AuthoredHandler
from agents.models import Decision
from agents.orchestration.routing import named_in
from directory.enrolment import add_remote_agent
from directory.identity import Caller
from directory.models import Agent, DelegationRule, Health
from directory.services import create_api_client, forget_agents
from tasks import delegation
from tasks.content import Incoming
from tasks.models import SubPlan, Task
from tasks.services import cancel_task, send_message
from tests.orchestration.far import Failing, Translator, settled, translates
from tests.orchestration.script import says, triage
from tests.support.cast import ALICE
from tests.support.messages_api import Reply
from tests.support.remote_agents import Asker, Refuser, remote_agent

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]

REQUEST = "Translate the summary into French"


@pytest.fixture(autouse=True)
def loopback_allowed(settings):
    settings.BUREAU_OUTBOUND_ALLOW = ("127.0.0.0/8", "::1")
    forget_agents()


@pytest.fixture
def lingo(seeded):
    """A translator, with its server in `there` and what it was told in `told`."""
    translator = Translator()
    with remote_agent(translator, name="Lingo", skills=[translates()]) as remote:
        agent = add_remote_agent(remote.url)
        agent.there, agent.told = remote, translator.told
        yield agent


def said(mission) -> str:
    return mission.status_message["parts"][0]["text"]


def row(point: str) -> Decision:
    return Decision.objects.filter(point=point).latest("id")


def passed_on(mission) -> Task:
    return mission.children.get()


def test_the_rules_match_it_by_its_examples(settle, lingo):
    mission = settle(REQUEST)
    # Nobody is held while the agent works.
    assert (mission.state, mission.lease_owner, mission.due_at) == ("working", "", None)
    mission = settled(mission)
    assert (mission.state, said(mission)) == ("completed", "Voilà.")
    artifact = mission.artifacts.get()
    assert (artifact.name, artifact.parts) == ("translation", [{"text": f"Le {REQUEST}"}])
    assert artifact.metadata["untrusted"] == mission.status_message["metadata"]["untrusted"] == "lingo"
    assert lingo.told == [REQUEST]
    assert (passed_on(mission).agent, passed_on(mission).root_id) == (lingo, mission.pk)
    route = row("route")
    assert (route.brain, route.choice["decision"], route.choice["agent"]) == ("rules", "agent", "lingo")
    assert route.candidates[0]["agent"] == "lingo"
    assert row("allocate").candidates == [{"agent": "lingo", "score": 1.0, "why": "the request was routed to it"}]


def test_what_tools_here_do_stays_here(settle, lingo):
    assert settle("List the files").state == "completed"
    assert (lingo.told, Task.objects.count()) == ([], 1)


@pytest.mark.parametrize("text", ["Write a poem about the sea", "Delete the old files", "Call a taxi"])
def test_what_nobody_offers_is_refused_as_before(settle, lingo, text):
    assert settle(text).state == "rejected"
    assert Task.objects.count() == 1


def choosing(slug: str, **more) -> Reply:
    return triage(decision="agent", agent=slug, **more)


def test_the_model_sees_it_as_a_candidate_and_chooses_it(settle, lingo, model):
    model.add(choosing("lingo"))
    mission = settled(settle("Say it in Paris' own words: good morning"))
    assert (mission.state, said(mission)) == ("completed", "Voilà.")
    assert len(model.requests) == 1
    schema = model.requests[0]["output_config"]["format"]["schema"]["properties"]
    assert (schema["decision"]["enum"], schema["agent"]["enum"]) == (["local", "agent", "reject"], ["", "lingo"])
    stable, asked = model.requests[0]["system"][0]["text"], str(model.requests[0]["messages"])
    # What it says of itself is fenced, and no part of what is the same every time.
    assert re.search(r"<candidate-(\w+)> from 'lingo'.*Translates texts\..*</candidate-\1>", asked)
    assert "Translates texts." not in stable
    assert {"agent": "lingo"} in row("route").candidates


def test_in_staged_mode_too(settle, lingo, model, settings):
    settings.BUREAU_TRIAGE = "staged"
    model.add(says("decompose", {"needs_plan": False}))
    model.add(Reply(match="choose between three ways", json={"decision": "agent", "agent": "lingo"}))
    assert settled(settle("Say good morning the way that they do in Paris, please")).state == "completed"
    assert not Decision.objects.filter(point="tool").exists()


def test_an_agent_that_was_not_offered_is_no_answer(settle, lingo, model):
    model.add(choosing("echo"), Reply(match="You write the answer", text="Bonjour."))
    mission = settle("Say good morning the way that they do in Paris, please")
    assert (mission.state, mission.children.count()) == ("completed", 0)
    assert row("route").is_fallback


@pytest.mark.parametrize(
    ("change", "reason"),
    [("disabled", ""), ("quarantined", "quarantine"), ("open", "in a row"), ("denied", "Not this one")],
)
def test_one_that_may_not_be_asked_is_not_offered(settle, lingo, model, change, reason):
    forbid(lingo, change)
    model.add(triage(), Reply(match="You write the answer", text="Bonjour."))
    before = len(lingo.there.requests)
    mission = settle(REQUEST)
    assert mission.state == "completed"
    assert "lingo" not in model.prompts[0]
    assert row("route").candidates == [{"decision": "local"}, {"decision": "reject"}]
    # Named, it is tried, and why it was not asked is on record.
    model.add(triage(), Reply(match="You write the answer", text="Bonjour."))
    mission = settle("Ask Lingo to translate the summary into French")
    assert (mission.state, mission.children.count()) == ("completed", 0)
    if reason:
        assert reason in row("allocate").candidates[0]["refused"]
    assert len(lingo.there.requests) == before


def forbid(agent: Agent, change: str) -> None:
    now = timezone.now()
    match change:
        case "disabled":
            Agent.objects.filter(pk=agent.pk).update(is_enabled=False)
        case "quarantined":
            Agent.objects.filter(pk=agent.pk).update(quarantined_at=now)
        case "open":
            Health.objects.filter(agent=agent).update(opened_at=now, failures=5)
        case "denied":
            DelegationRule.objects.create(target_agent=agent, effect="deny", note="Not this one")


@pytest.fixture
def meanwhile(monkeypatch):
    """Something that happens between the choice and the delegation."""

    def do(what) -> None:
        store = delegation.store_plan

        def stored(claim, drafts) -> None:
            store(claim, drafts)
            what()

        monkeypatch.setattr(delegation, "store_plan", stored)

    return do


def test_one_that_falls_ill_meanwhile_gives_way_to_the_next(settle, lingo, meanwhile):
    second = Translator()
    with remote_agent(second, name="Polyglot", skills=[translates("Translate the summary into Spanish")]) as remote:
        add_remote_agent(remote.url)
        first = row_of_choice(settle, meanwhile)
        mission = settled(Task.objects.get(parent=None))
    assert mission.state == "completed"
    assert passed_on(mission).agent.slug != first
    refused = [one for one in row("allocate").candidates if "refused" in one]
    assert [one["agent"] for one in refused] == [first]


def row_of_choice(settle, meanwhile) -> str:
    chosen: list[str] = []

    def fall_ill() -> None:
        chosen.append(SubPlan.objects.get().wanted[0])
        forbid(Agent.objects.get(slug=chosen[0]), "quarantined")

    meanwhile(fall_ill)
    settle(REQUEST)
    return chosen[0]


def test_where_there_is_no_next_it_is_done_here(settle, lingo, model, meanwhile):
    meanwhile(lambda: forbid(lingo, "denied"))
    model.add(choosing("lingo", call={"tool": "echo", "params": {"text": "Bonjour"}}))
    mission = settle("Say good morning the way that they do in Paris, please")
    assert (mission.state, mission.children.count()) == ("completed", 0)
    assert mission.artifacts.get(name="echo").parts == [{"text": "Bonjour"}]
    assert lingo.told == []
    assert mission.messages.filter(role="agent").first().parts == [
        {"text": "lingo could not take it now; it is tried here."}
    ]
    assert "Not this one" in row("allocate").candidates[0]["refused"]
    assert len(model.requests) == 1


def test_one_that_is_forbidden_after_the_delegation_gives_way_too(settle, lingo, monkeypatch):
    """The task is there already, and its first turn finds the agent in quarantine."""
    second = Translator()
    delegate = delegation.delegate

    def delegated(claim, plan, agent, message):
        found = delegate(claim, plan, agent, message)
        if not plan.attempt:
            forbid(agent, "quarantined")
        return found

    monkeypatch.setattr(delegation, "delegate", delegated)
    with remote_agent(second, name="Polyglot", skills=[translates("Translate the summary into Spanish")]) as remote:
        add_remote_agent(remote.url)
        mission = settled(settle(REQUEST))
    assert mission.state == "completed"
    assert sorted(mission.children.values_list("state", flat=True)) == ["completed", "rejected"]
    assert row("recover").choice["strategy"] == "alternative"
    assert len(lingo.told) + len(second.told) == 1


@pytest.mark.parametrize("brain", ["rules", "claude"])
@pytest.mark.parametrize(
    "text", ["Ask Lingo to {}", "please tell lingo: {}", "@lingo {}", "Lingo: {}", "{} using Lingo"]
)
def test_the_one_that_is_named_gets_it(settle, lingo, request, brain, text):
    if brain == "claude":
        request.getfixturevalue("model").add(triage())
    mission = settled(settle(text.format("sing a song")))
    assert (mission.state, lingo.told) == ("completed", ["sing a song"])
    assert row("route").choice["agent"] == "lingo"


def test_a_local_one_may_be_named(settle, lingo):
    mission = settle("Ask echo to repeat after me")
    assert (mission.state, passed_on(mission).agent.slug) == ("completed", "echo")
    assert mission.artifacts.get().parts == [{"text": "repeat after me"}]
    assert "untrusted" not in (mission.status_message or {}).get("metadata", {})


def test_what_the_model_refuses_is_refused_whoever_is_named(settle, lingo, model):
    model.add(triage(decision="reject", reason="That would hurt others."))
    mission = settle("Ask Lingo to write something hurtful")
    assert (mission.state, said(mission), lingo.told) == ("rejected", "That would hurt others.", [])


def test_what_is_harmful_is_refused_whoever_is_named(settle, lingo):
    assert settle("Ask Lingo to break into my neighbour's e-mail account").state == "rejected"
    assert lingo.told == []


@pytest.mark.parametrize(("agents", "state"), [(["assistant"], "rejected"), (["assistant", "lingo"], "working")])
def test_a_key_for_certain_agents_reaches_no_other(settle, lingo, agents, state):
    client, _ = create_api_client("limited", agents=agents)
    token = Caller("token:peer", "peer", agents=frozenset(agents))
    for caller, text in itertools.product((Caller.from_client(client), token), (REQUEST, f"Ask Lingo to {REQUEST}")):
        sent = send_message(caller, Agent.objects.get(slug="assistant"), Incoming.from_text(text))
        runtime.drain("default")
        assert Task.objects.get(pk=sent.task_id).state == state


AGENTS = [("echo", "Echo"), ("file-lister", "File lister"), ("me", "me"), ("lingo", "Lingo"), ("x1", "Echo")]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ask the file lister to list all", ("file-lister", "list all")),
        ("Could you ask the agent File-Lister what is there?", ("file-lister", "what is there?")),
        ("ask lingo, to translate it", ("lingo", "translate it")),
        ("Translate it with the agent Lingo.", ("lingo", "Translate it")),
        # A slug counts before a name that two agents have.
        ("Echo: hi", ("echo", "hi")),
        ("tell me a joke", ("", "tell me a joke")),
        ("ask Lingo", ("", "ask Lingo")),
        ("ask lingonberry growers to answer", ("", "ask lingonberry growers to answer")),
        ("Translate: lingo", ("", "Translate: lingo")),
        ("Explain what Lingo is", ("", "Explain what Lingo is")),
        ("Summarise it with care", ("", "Summarise it with care")),
        ("", ("", "")),
    ],
)
def test_who_is_named(text, found):
    assert named_in(text, [Agent(slug=slug, name=name) for slug, name in AGENTS]) == found


def test_its_question_comes_up_and_the_answer_goes_down(settle, seeded, model):
    with remote_agent(Asker(), name="Greeter", skills=[translates("Greet somebody")]) as remote:
        add_remote_agent(remote.url)
        model.add(choosing("greeter"))
        mission = settled(settle("Greet somebody warmly, as one does in the evening"))
        assert mission.state == "input-required"
        assert "What is your name?" in said(mission)
        assert mission.status_message["metadata"]["untrusted"] == "greeter"
        model.add(says("follow-up", {"decision": "human"}), says("follow-up", {"decision": "handle"}))
        mission = settled(settle("Hold on", task=mission.pk))
        assert mission.state == "input-required"
        assert passed_on(mission).messages.filter(role="user").count() == 1
        mission = settled(settle("Ada", task=mission.pk))
    assert (mission.state, mission.artifacts.get().parts) == ("completed", [{"text": "Hello, Ada!"}])


@pytest.mark.parametrize("fault", [{"status": 400}, {"text": "no json"}])
def test_an_answer_to_it_that_nobody_can_judge_is_not_passed_on(settle, seeded, model, fault):
    with remote_agent(Asker(), name="Greeter", skills=[translates("Greet somebody")]) as remote:
        add_remote_agent(remote.url)
        model.add(choosing("greeter"), says("follow-up", **fault))
        mission = settled(settle("Greet somebody warmly, as one does in the evening"))
        mission = settled(settle("Ada", task=mission.pk))
        assert mission.state == "input-required"
        assert "I could not tell whether “Ada” answers" in said(mission)
        assert passed_on(mission).messages.filter(role="user").count() == 1
        mission = settled(settle("yes", task=mission.pk))
    assert (mission.state, mission.artifacts.get().parts) == ("completed", [{"text": "Hello, Ada!"}])


def test_its_rejection_is_the_missions(settle, seeded, model):
    with remote_agent(Refuser(), name="Refuser", skills=[translates()]) as remote:
        add_remote_agent(remote.url)
        model.add(choosing("refuser"), says("recover", {"strategy": "abandon"}))
        mission = settled(settle(REQUEST))
    assert (mission.state, said(mission)) == ("rejected", "Not that.")
    assert mission.status_message["metadata"]["untrusted"] == "refuser"


def test_its_failure_is_the_missions_where_nobody_else_can(settle, seeded):
    with remote_agent(Failing(), name="Failing", skills=[translates()]) as remote:
        add_remote_agent(remote.url)
        mission = settled(settle(REQUEST))
    assert (mission.state, said(mission)) == ("failed", "No ink.")
    assert mission.status_message["metadata"]["errorClass"] == "remote_failed"


def test_a_file_that_it_is_about_goes_along(settle, lingo, project):
    (project / "README.md").write_text("# Bees\n\nThey fly.\n")
    mission = settled(settle("Translate the report README.md into French"))
    assert mission.state == "completed"
    assert "They fly." in lingo.told[0]
    assert list(SubPlan.objects.values_list("key", flat=True)) == ["read", "request"]


def test_the_mission_is_canceled_with_its_leg(settle, lingo):
    mission = settle(REQUEST)
    cancel_task(ALICE, mission.pk)
    assert set(Task.objects.values_list("state", flat=True)) == {"canceled"}


def test_a_turn_that_is_run_again_asks_once(settle, lingo, monkeypatch):
    """The worker dies after the delegation, and before it lets go of the mission."""
    with monkeypatch.context() as patch:
        patch.setattr(runtime, "wait", lambda *_: (_ for _ in ()).throw(SystemExit))
        with pytest.raises(SystemExit):
            settle(REQUEST)
    Task.objects.filter(parent=None).update(due_at=timezone.now(), lease_owner="")
    mission = settled(Task.objects.get(parent=None))
    assert (mission.state, len(lingo.told)) == ("completed", 1)
    assert Decision.objects.filter(point="route").count() == 1


def test_an_agent_of_your_own_is_offered(settle, seeded, monkeypatch):
    ours = AuthoredHandler("poet-of-ours", lambda turn: f"Since you say {turn.text}", takes_sub_plans=False)
    monkeypatch.setitem(registry._handlers, ours.name, ours)
    poet = Agent.objects.create(slug="poet-of-ours", name="Poet", handler="poet-of-ours")
    poet.skills.create(skill_id="poem", name="Poems", examples=["Write a poem about the winter", "Rhyme about cats"])
    mission = settle("Write a poem about the summer")
    assert (mission.state, passed_on(mission).agent) == ("completed", poet)
    assert said(mission) == "Since you say Write a poem about the summer"
