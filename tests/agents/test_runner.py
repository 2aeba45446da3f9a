"""Acts happen once: replay after a crash, at every point where a crash can happen."""

import pytest

from agents.conversation import Conversation
from agents.exceptions import Stopped, ToolError
from agents.handlers.acting import resume_unsettled, use_tool
from agents.models import ToolCall
from agents.outcomes import Blocked, Error, Ok
from agents.tools.base import Params, Question, Tool, ToolResult
from agents.tools.runner import UNEXPECTED, MayHaveHappened, call_tool
from agents.turn import Turn
from tasks.claims import claim_next, release
from tasks.models import Event
from tasks.results import ArtifactDraft
from tasks.services import cancel_task
from tests.support.cast import ALICE

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


class PostParams(Params):
    letter: str = ""


class Post(Tool[PostParams]):
    """Sends letters; `sent` is what has really happened. `then` is done after that."""

    name = "post"
    description = "Sends a letter."
    params = PostParams
    is_repeatable = False

    def __init__(self):
        self.sent = []
        self.then = lambda: None

    def question(self, params):
        return None if params.letter else Question("letter", "Which letter?")

    def run(self, turn, params):
        self.sent.append(params.letter)
        self.then()
        return ToolResult("Sent.", [ArtifactDraft("receipt", [{"text": params.letter}])], {"count": len(self.sent)})


class Crash(BaseException):
    """The process is gone: nothing after this line is run."""


def crash():
    raise Crash


@pytest.fixture
def post():
    return Post()


@pytest.fixture
def turn(begin):
    return begin("assistant", "post it")


def taken_again(turn) -> Turn:
    """The same turn on another worker, after the lease of the first ran out."""
    release(turn.claim)
    return Turn(claim_next("default", "another-worker"), turn.agent)


def letter(text="Dear Bob"):
    return PostParams(letter=text)


def test_the_row_is_there_before_the_act(turn, post):
    seen = []
    post.then = lambda: seen.append(ToolCall.objects.values_list("state", "params", "epoch").get())
    result = call_tool(turn, post, letter(), "1:1:post")
    assert seen == [("started", {"letter": "Dear Bob"}, turn.claim.epoch)]
    row = ToolCall.objects.get()
    assert (row.state, row.result["text"], row.error) == ("succeeded", "Sent.", "")
    assert row.ended_at >= row.started_at
    assert result.data == {"count": 1}
    assert [event.payload["id"] for event in Event.objects.filter(kind="tool")] == [str(row.pk)] * 2


def test_an_act_that_succeeded_is_not_repeated(turn, post):
    first = call_tool(turn, post, letter(), "1:1:post")
    again = call_tool(taken_again(turn), post, letter(), "1:1:post")
    assert (again, post.sent) == (first, ["Dear Bob"])


def test_an_act_that_failed_is_not_repeated(turn, post):
    def fail():
        raise ToolError("no_stamp", "There is no stamp.")

    post.then = fail
    with pytest.raises(ToolError, match="no stamp"):
        call_tool(turn, post, letter(), "1:1:post")
    post.then = lambda: None
    with pytest.raises(ToolError) as caught:
        call_tool(taken_again(turn), post, letter(), "1:1:post")
    assert (caught.value.error_class, post.sent) == ("no_stamp", ["Dear Bob"])
    assert ToolCall.objects.get().error == "There is no stamp."


def test_an_act_of_unknown_end_is_not_repeated(turn, post):
    post.then = crash
    with pytest.raises(Crash):
        call_tool(turn, post, letter(), "1:1:post")
    post.then = lambda: None
    with pytest.raises(MayHaveHappened) as caught:
        call_tool(taken_again(turn), post, letter(), "1:1:post")
    assert (caught.value.call.tool, post.sent) == ("post", ["Dear Bob"])
    assert ToolCall.objects.get().state == "started"


def test_an_act_that_does_no_harm_twice_is_repeated(turn, post, monkeypatch):
    monkeypatch.setattr(Post, "is_repeatable", True)
    post.then = crash
    with pytest.raises(Crash):
        call_tool(turn, post, letter(), "1:1:post")
    post.then = lambda: None
    again = taken_again(turn)
    call_tool(again, post, letter(), "1:1:post")
    row = ToolCall.objects.get()
    assert (row.state, row.epoch, post.sent) == ("succeeded", again.claim.epoch, ["Dear Bob", "Dear Bob"])


def test_the_user_is_asked_and_says_yes(turn, post):
    post.then = crash
    with pytest.raises(Crash):
        use_tool(turn, Conversation(turn), post, {"letter": "Dear Bob"})
    post.then = lambda: None
    turn = taken_again(turn)
    asked = use_tool(turn, Conversation(turn), post, {"letter": "Dear Bob"})
    assert isinstance(asked, Blocked)
    assert asked == resume_unsettled(turn, Conversation(turn), {"post": post})
    answered = _answered(turn, "Yes, please", asked)
    outcome = resume_unsettled(answered, Conversation(answered), {"post": post})
    assert isinstance(outcome, Ok)
    assert post.sent == ["Dear Bob", "Dear Bob"]
    assert list(ToolCall.objects.values_list("key", "state", "error_class")) == [
        ("1:1:post", "failed", "unknown_end"),
        ("2:1:post", "succeeded", ""),
    ]


@pytest.mark.parametrize(("answer", "outcome"), [("no", Error), ("what?", Blocked)])
def test_the_user_does_not_say_yes(turn, post, answer, outcome):
    post.then = crash
    with pytest.raises(Crash):
        use_tool(turn, Conversation(turn), post, {"letter": "Dear Bob"})
    again = taken_again(turn)
    asked = use_tool(again, Conversation(again), post, {"letter": "Dear Bob"})
    answered = _answered(again, answer, asked)
    assert isinstance(resume_unsettled(answered, Conversation(answered), {"post": post}), outcome)
    assert post.sent == ["Dear Bob"]


def test_what_is_said_before_the_question_is_no_answer_to_it(turn, post):
    post.then = crash
    with pytest.raises(Crash):
        use_tool(turn, Conversation(turn), post, {"letter": "Dear Bob"})
    answered = _answered(taken_again(turn), "ok, thanks", None)
    assert isinstance(resume_unsettled(answered, Conversation(answered), {"post": post}), Blocked)
    assert post.sent == ["Dear Bob"]


def _answered(turn, text, asked) -> Turn:
    """The turn that follows on a message; `asked` is the question that was put before it, if one was."""
    from agents.runtime import as_state
    from tasks.content import Incoming
    from tasks.results import finish
    from tasks.services import send_message

    if asked is None:
        release(turn.claim)
    else:
        state, message, _ = as_state(asked)
        finish(turn.claim, state, message=message)
    send_message(ALICE, turn.agent, Incoming.from_text(text), task_id=turn.claim.task_id)
    return Turn(claim_next("default", "test-worker"), turn.agent)


def test_a_canceled_turn_begins_nothing(turn, post):
    cancel_task(ALICE, turn.claim.task_id)
    with pytest.raises(Stopped):
        call_tool(turn, post, letter(), "1:1:post")
    assert (post.sent, ToolCall.objects.count()) == ([], 0)


def test_a_turn_that_was_told_to_stop_begins_nothing(turn, post):
    turn.stop()
    with pytest.raises(Stopped):
        call_tool(turn, post, letter(), "1:1:post")
    assert (post.sent, ToolCall.objects.count()) == ([], 0)


def test_what_was_done_while_the_task_was_canceled_is_recorded(turn, post):
    post.then = lambda: cancel_task(ALICE, turn.claim.task_id)
    with pytest.raises(Stopped):
        call_tool(turn, post, letter(), "1:1:post")
    assert ToolCall.objects.get().state == "succeeded"


def test_a_late_worker_cannot_end_an_act_that_another_has_taken_over(turn, post, monkeypatch):
    monkeypatch.setattr(Post, "is_repeatable", True)
    second = Post()

    def overtake():
        call_tool(taken_again(turn), second, letter(), "1:1:post")

    post.then = overtake
    with pytest.raises(Stopped):
        call_tool(turn, post, letter(), "1:1:post")
    row = ToolCall.objects.get()
    assert (row.state, row.epoch) == ("succeeded", turn.claim.epoch + 1)


def test_a_broken_tool_shows_nothing_of_its_inside(turn, post, caplog):
    def break_down():
        raise ValueError("the password is hunter2")

    post.then = break_down
    outcome = use_tool(turn, Conversation(turn), post, {"letter": "x"})
    assert outcome == Error("internal", UNEXPECTED)
    assert "ValueError" in caplog.text
    assert ToolCall.objects.get().error == UNEXPECTED


def test_parameters_are_checked_before_anything_is_recorded(turn, post):
    outcome = use_tool(turn, Conversation(turn), post, {"stamp": 1})
    assert isinstance(outcome, Blocked)
    assert "Its parameters are: letter." in outcome.why
    assert use_tool(turn, Conversation(turn), post, {}) == Blocked("", ["Which letter?"], ["letter"])
    assert (post.sent, ToolCall.objects.count()) == ([], 0)


def test_text_that_no_database_keeps_is_recorded_cleaned(turn, post):
    call_tool(turn, post, PostParams(letter="a\x00b\ud800"), "1:1:post")
    assert ToolCall.objects.get().params == {"letter": "a\ufffdb\ufffd"}
