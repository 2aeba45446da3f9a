"""The point `route` with a model: do it here, or refuse it; and what stands when the answer is unclear."""

import pytest

from agents.models import Decision
from agents.outcomes import Ok, Rejected
from tests.support.messages_api import Reply

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("staged")]

LOCAL = {"decision": "local", "reason": "", "rationale": "An everyday question.", "confidence": 0.9}


def routed(turn) -> Decision:
    return Decision.objects.get(task_id=turn.claim.task_id, point="route")


def test_a_good_answer_is_followed_and_recorded(run, model):
    usage = {"input_tokens": 1000, "output_tokens": 100, "cache_read_input_tokens": 2000}
    model.add(Reply(json=LOCAL, usage=usage))
    outcome = run("assistant", "What is the capital of France?")
    assert isinstance(outcome, Ok)
    row = routed(run.turn)
    assert (row.brain, row.model, row.choice) == (
        "claude",
        "claude-haiku-5-5",
        {"decision": "local", "agent": "", "reason": ""},
    )
    assert (row.rationale, row.confidence, row.is_fallback, row.error) == ("An everyday question.", 0.9, False, "")
    assert (row.input_tokens, row.output_tokens, row.cache_read_tokens, row.attempts) == (1000, 100, 2000, 1)
    # 1000 x $0.10 + 100 x $0.50 + 2000 x $0.01, per million
    assert f"{row.cost_usd:.6f}" == "0.000170"
    assert row.inputs["request"] == "What is the capital of France?"
    assert row.candidates == [{"decision": "local"}, {"decision": "reject"}]
    assert row.latency_ms >= 0


def test_it_asks_the_small_model_with_a_schema(run, model, settings):
    settings.BUREAU_MODEL_SMALL = "some-small-model"
    run("assistant", "What is the capital of France?")
    body = model.requests[0]
    assert body["model"] == "some-small-model"
    assert body["output_config"]["format"]["schema"]["properties"]["decision"]["enum"] == ["local", "reject"]
    # An unknown model may not know it.
    assert "effort" not in body["output_config"]
    assert Decision.objects.first().cost_usd is None


def test_a_refusal_by_the_model_ends_the_task_with_its_reason(run, model):
    model.add(Reply(json={**LOCAL, "decision": "reject", "reason": "That would hurt others."}))
    outcome = run("assistant", "Help me with something bad")
    assert outcome == Rejected("That would hurt others.")
    assert Decision.objects.count() == 1


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(json={**LOCAL, "decision": "reject"}), "invalid: The request was refused without a reason."),
        (Reply(json={"decision": "perhaps"}), "invalid: The answer does not fit the schema"),
        (Reply(text="I think this is fine."), "invalid: The answer is not JSON."),
        (Reply(text='{"decision": "lo', stop_reason="max_tokens"), "truncated: "),
        (Reply(status=400, error="bad schema"), "bad_request: "),
        (Reply(status=401), "auth: "),
        (Reply(fault="malformed"), "unreadable: "),
    ],
)
def test_an_unclear_answer_means_that_it_is_tried_here(run, model, reply, error):
    model.add(reply)
    outcome = run("assistant", "What is the capital of France?")
    assert isinstance(outcome, Ok)
    row = routed(run.turn)
    assert (row.choice["decision"], row.is_fallback) == ("local", True)
    assert row.error.startswith(error)


def test_a_confidence_that_makes_no_sense_is_left_out(run, model):
    model.add(Reply(json={"decision": "reject", "reason": "No.", "confidence": 95}))
    assert run("assistant", "Do it") == Rejected("No.")
    assert (routed(run.turn).confidence, routed(run.turn).is_fallback) == (None, False)


def test_words_around_the_json_do_no_harm(run, model):
    model.add(Reply(text='Sure! ```json\n{"decision": "reject", "reason": "No."}\n```'))
    assert run("assistant", "Do it") == Rejected("No.")
    assert not routed(run.turn).is_fallback


def test_overload_and_then_an_answer_is_an_answer(run, model):
    model.add(Reply(status=529), Reply(json={**LOCAL, "decision": "reject", "reason": "No."}))
    assert run("assistant", "Do it") == Rejected("No.")
    row = routed(run.turn)
    assert (row.attempts, row.is_fallback) == (2, False)


def test_when_the_model_is_away_the_rules_still_refuse_what_is_harmful(run, model):
    model.add(Reply(status=401, times=0))
    outcome = run("assistant", "Help me hack into a government database")
    assert isinstance(outcome, Rejected)
    assert "breaking into systems" in outcome.reason
    row = routed(run.turn)
    assert (row.brain, row.is_fallback, row.error[:6]) == ("rules", True, "auth: ")


def test_a_request_that_the_model_will_not_even_read_is_not_passed_on_to_it(run, model):
    model.add(Reply(text="", stop_reason="refusal", times=0))
    outcome = run("assistant", "Something that trips a classifier")
    assert isinstance(outcome, Rejected)
    assert "declined" in outcome.reason
    assert len(model.requests) == 1


def test_time_runs_out(run, model, settings):
    settings.BUREAU_MODEL_TIMEOUT = 0.4
    model.add(Reply(fault="hang", times=1))
    outcome = run("assistant", "list files")
    assert isinstance(outcome, Ok)
    assert routed(run.turn).error.startswith(("timeout: ", "unreachable: "))
