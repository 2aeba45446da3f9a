"""Every decision is a row with its event, made once however often the turn is taken."""

import pytest

from agents.brain import get_brain
from agents.conversation import Conversation
from agents.exceptions import Stopped
from agents.models import Decision
from agents.points import ROUTE, TOOL, Triage
from agents.tools.catalog import tools
from tasks.claims import claim_next, release
from tasks.models import Event
from tasks.services import cancel_task
from tests.support.cast import ALICE
from tests.support.messages_api import Reply

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


def triage(turn) -> Triage:
    return Triage(Conversation(turn), list(tools().values()))


@pytest.mark.parametrize(
    ("key", "url", "name"),
    [("", "", "rules"), ("sk-ant-x", "", "claude"), ("", "http://127.0.0.1:9", "claude")],
)
def test_claude_decides_where_there_is_a_key_or_a_server(settings, key, url, name):
    settings.ANTHROPIC_API_KEY, settings.ANTHROPIC_BASE_URL = key, url
    assert get_brain().name == name


def test_a_decision_is_recorded_with_its_event(begin):
    turn = begin("assistant", "list files")
    choice = get_brain().decide(turn, TOOL, triage(turn))
    row = Decision.objects.get()
    assert choice.answer.tool == row.choice["tool"] == "list_files"
    assert (row.brain, row.model, row.cost_usd, row.attempts) == ("rules", "", None, 0)
    assert Event.objects.get(kind="decision").payload == {"id": str(row.pk)}


def test_a_turn_that_is_taken_again_gets_the_same_choice(begin, model):
    model.add(Reply(json={"call": {"tool": "echo", "params": {"text": "one"}}, "confidence": 0.5}))
    model.add(Reply(json={"call": {"tool": "answer", "params": {}}}))
    turn = begin("assistant", "do something")
    first = get_brain().decide(turn, TOOL, triage(turn))
    again = get_brain().decide(turn, TOOL, triage(turn))
    assert again == first
    assert (Decision.objects.count(), len(model.requests)) == (1, 1)


def test_a_choice_that_is_no_answer_any_more_is_made_again(begin):
    turn = begin("assistant", "list files")
    get_brain().decide(turn, ROUTE, triage(turn))
    Decision.objects.update(choice={"decision": "sideways"})
    assert get_brain().decide(turn, ROUTE, triage(turn)).answer.decision == "local"
    assert Decision.objects.count() == 2


def test_a_new_message_gets_a_choice_of_its_own(begin):
    turn = begin("assistant", "list files")
    get_brain().decide(turn, TOOL, triage(turn))
    release(turn.claim)
    turn = begin("assistant", "list agents", task=turn.claim.task_id)
    assert get_brain().decide(turn, TOOL, triage(turn)).answer.tool == "list_agents"
    assert list(Decision.objects.values_list("key", flat=True)) == ["1:tool", "2:tool"]


def test_a_turn_that_lost_its_claim_records_nothing(begin):
    turn = begin("assistant", "list files")
    cancel_task(ALICE, turn.claim.task_id)
    with pytest.raises(Stopped):
        get_brain().decide(turn, ROUTE, triage(turn))
    assert not Decision.objects.exists()


def test_an_overtaken_turn_records_nothing(begin):
    turn = begin("assistant", "list files")
    release(turn.claim)
    assert claim_next("default", "another")
    with pytest.raises(Stopped):
        get_brain().decide(turn, ROUTE, triage(turn))
    assert not Decision.objects.exists()


def test_text_that_no_database_keeps_is_recorded_cleaned(begin, model):
    model.add(Reply(text='{"decision": "reject", "reason": "No\\u0000pe.", "rationale": "\\ud800"}'))
    turn = begin("assistant", "do it")
    get_brain().decide(turn, ROUTE, triage(turn))
    row = Decision.objects.get()
    assert "\x00" not in str(row.choice)
