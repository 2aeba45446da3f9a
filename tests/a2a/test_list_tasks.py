"""ListTasks: the caller's missions, filtered and in pages."""

import pytest

from tasks.models import Task
from tasks.results import stream_chunk
from tests.a2a.peer import texts

pytestmark = pytest.mark.both_databases


def ids(response):
    return [task["id"] for task in response["tasks"]]


def test_it_lists_the_newest_status_first(alice, worker):
    sent = [alice.send(text)["id"] for text in ("one", "two", "three")]
    response = alice.result("ListTasks")

    assert ids(response) == sent[::-1]
    assert response["totalSize"] == 3
    assert response["pageSize"] == 50
    assert response["nextPageToken"] == ""


def test_an_empty_list_has_all_its_fields(alice):
    assert alice.result("ListTasks", {}) == {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}


def test_others_are_not_listed(alice, bob):
    alice.submit("mine")

    assert bob.result("ListTasks")["tasks"] == []


def test_it_leaves_artifacts_out_unless_they_are_asked_for(alice, worker):
    alice.send("Hello there")

    assert "artifacts" not in alice.result("ListTasks")["tasks"][0]
    assert texts(alice.result("ListTasks", {"includeArtifacts": True})["tasks"][0]) == ["Hello there"]


def test_it_pages(alice):
    sent = [alice.submit(str(number))["id"] for number in range(5)][::-1]
    found, token = [], ""
    for expected in (2, 2, 1):
        response = alice.result("ListTasks", {"pageSize": 2, "pageToken": token})
        assert (len(response["tasks"]), response["totalSize"], response["pageSize"]) == (expected, 5, 2)
        found += ids(response)
        token = response["nextPageToken"]

    assert token == ""
    assert found == sent


def test_a_page_stays_where_it_was_while_tasks_are_written(alice, take):
    sent = [alice.submit(str(number))["id"] for number in range(4)][::-1]
    first = alice.result("ListTasks", {"pageSize": 2})
    alice.submit("newer")
    take()  # the oldest moves to the top

    second = alice.result("ListTasks", {"pageSize": 2, "pageToken": first["nextPageToken"]})
    assert ids(first) == sent[:2]
    assert ids(second) == [sent[2]]


def pages(peer, **params):
    """The ids on each page, to the last."""
    token = ""
    while True:
        response = peer.result("ListTasks", {**params, "pageToken": token})
        yield ids(response)
        token = response["nextPageToken"]
        if not token:
            return


def test_a_page_ends_when_its_bytes_pass_the_limit(alice, worker, settings):
    settings.BUREAU_PAGE_BYTES = 20_000
    sent = [alice.send("x" * 9000)["id"] for _ in range(5)][::-1]

    assert list(pages(alice)) == [sent[:2], sent[2:4], sent[4:]]
    assert list(pages(alice, pageSize=1)) == [[each] for each in sent]
    assert list(pages(alice, includeArtifacts=True)) == [[each] for each in sent]
    assert list(pages(alice, historyLength=0)) == [sent]
    settings.BUREAU_PAGE_BYTES = 5000
    assert list(pages(alice)) == [[each] for each in sent]


def test_what_is_still_growing_counts(alice, take, settings):
    settings.BUREAU_PAGE_BYTES = 20_000
    sent = [alice.submit("x")["id"] for _ in range(2)]
    for _ in sent:
        claim = take()
        stream_chunk(claim, "poem", "x" * 8000, is_first=True)
        stream_chunk(claim, "poem", "x" * 8000, is_first=False)

    assert [len(page) for page in pages(alice, includeArtifacts=True)] == [1, 1]
    assert [len(page) for page in pages(alice)] == [2]


def test_only_the_messages_that_are_shown_count(alice, take, settings):
    settings.BUREAU_PAGE_BYTES = 20_000
    for _ in range(2):
        task = alice.submit("x" * 15_000)
        alice.submit("y", taskId=task["id"])

    assert [len(page) for page in pages(alice)] == [1, 1]
    assert [len(page) for page in pages(alice, historyLength=1)] == [2]


def test_it_filters_by_context(alice):
    one = alice.submit("x", contextId="one")
    alice.submit("y", contextId="two")

    assert ids(alice.result("ListTasks", {"contextId": "one"})) == [one["id"]]
    assert ids(alice.result("ListTasks", {"contextId": "three"})) == []


def test_it_filters_by_state(alice, take):
    first = alice.submit("x")
    take()
    second = alice.submit("y")

    assert ids(alice.result("ListTasks", {"status": "TASK_STATE_WORKING"})) == [first["id"]]
    assert ids(alice.result("ListTasks", {"status": "TASK_STATE_SUBMITTED"})) == [second["id"]]
    assert len(ids(alice.result("ListTasks", {"status": "TASK_STATE_UNSPECIFIED"}))) == 2


def test_it_filters_by_time_of_status(alice):
    alice.submit("x")
    second = alice.submit("y")
    since = alice.result("GetTask", {"id": second["id"]})["status"]["timestamp"]

    assert second["id"] in ids(alice.result("ListTasks", {"statusTimestampAfter": since}))
    assert second["id"] in ids(alice.result("ListTasks", {"statusTimestampAfter": "0001-01-01T00:00:00Z"}))
    assert ids(alice.result("ListTasks", {"statusTimestampAfter": "9999-12-31T23:59:59.999Z"})) == []


def test_it_limits_the_history(alice):
    alice.submit("x")

    assert "history" not in alice.result("ListTasks", {"historyLength": 0})["tasks"][0]
    assert len(alice.result("ListTasks", {"historyLength": 3})["tasks"][0]["history"]) == 1


def test_it_lists_missions_and_not_what_they_are_made_of(alice):
    mission = alice.submit("x")
    parent = Task.objects.get(pk=mission["id"])
    part = alice.submit("part of it")
    Task.objects.filter(pk=part["id"]).update(parent=parent, root=parent)

    assert ids(alice.result("ListTasks")) == [mission["id"]]


def test_an_agents_address_lists_its_own(as_peer):
    echo = as_peer("alice", slug="echo").submit("x")
    other = as_peer("alice", slug="directory").submit("y")

    assert ids(as_peer("alice", slug="echo").result("ListTasks")) == [echo["id"]]
    assert ids(as_peer("alice").result("ListTasks")) == [other["id"], echo["id"]]


def test_it_says_that_there_is_no_such_agent(as_peer):
    assert as_peer("alice", slug="nobody").error("ListTasks")["code"] == -32004


@pytest.mark.parametrize(
    "params",
    [
        {"pageSize": 0},
        {"pageSize": 101},
        {"pageSize": -1},
        {"pageSize": 10**12},
        {"pageSize": "many"},
        {"pageToken": "nonsense"},
        {"pageToken": "\x00"},
        {"contextId": "\x00"},
        {"contextId": 1},
        {"status": "running"},
        {"status": 99},
        {"statusTimestampAfter": "yesterday"},
        {"statusTimestampAfter": "2025-01-01"},
        {"statusTimestampAfter": "0000-01-01T00:00:00Z"},
        {"historyLength": -1},
        {"includeArtifacts": "yes"},
    ],
)
def test_it_refuses_wrong_parameters(alice, params):
    assert alice.error("ListTasks", params)["code"] == -32602
