"""`read_file` and `list_files` as tools: what they deliver and what they say."""

import pytest

from agents.outcomes import Blocked, Error, Ok
from tasks.files import fetch_file, file_part, read_file, store_file
from tests.support.cast import ALICE, BOB

pytestmark = pytest.mark.django_db


def test_a_file_is_delivered_as_an_artifact(run, project):
    outcome = run("file-reader", "README.md")
    assert isinstance(outcome, Ok)
    assert outcome.message == "README.md: 4 lines, 74 bytes."
    assert [(draft.name, draft.parts) for draft in outcome.artifacts] == [
        ("README.md", [{"text": (project / "README.md").read_text()}])
    ]


def test_a_long_file_is_delivered_as_a_file(run, project, settings):
    settings.BUREAU_INLINE_BYTES = 10
    outcome = run("file-reader", "read docs/guide.txt")
    assert outcome.artifacts[0].parts == [{"text": "Guide\n"}]
    settings.BUREAU_INLINE_BYTES = 3
    part = run("file-reader", "read docs/guide.txt").artifacts[0].parts[0]
    assert (part["filename"], part["mediaType"]) == ("guide.txt", "text/plain")
    assert read_file(fetch_file(ALICE, part["file"])) == b"Guide\n"


@pytest.mark.parametrize(
    ("text", "error_class"),
    [
        ("read nothing.txt", "file_not_found"),
        ("read ../../etc/passwd", "outside_root"),
        ("read the file .env", "forbidden_file"),
        ('{"path": "/etc/passwd"}', "outside_root"),
    ],
)
def test_what_cannot_be_read_fails_with_the_reason(run, project, text, error_class):
    outcome = run("file-reader", text)
    assert isinstance(outcome, Error)
    assert outcome.error_class == error_class
    assert outcome.message


def test_it_asks_which_file(run, follow_up, project):
    blocked = run("file-reader", "please read the file")
    assert isinstance(blocked, Blocked)
    assert blocked.missing_inputs == ["path"]
    assert follow_up(blocked, "docs/guide.txt").artifacts[0].parts == [{"text": "Guide\n"}]


def test_attached_files_are_shown(run):
    one = file_part(store_file(ALICE.principal, "one.txt", "text/plain", b"One"))
    two = file_part(store_file(ALICE.principal, "two.txt", "text/plain", b"Two"))
    outcome = run("file-reader", "show me the attached files", one, two)
    assert [draft.name for draft in outcome.artifacts] == ["one.txt", "two.txt"]


def test_attached_files_of_others_are_not_there(run):
    part = file_part(store_file(BOB.principal, "diary.txt", "text/plain", b"Dear diary"))
    assert run("file-reader", "read the attachment", part).error_class == "file_not_found"


def test_addresses_are_not_fetched(run):
    outcome = run("file-reader", "read the attachment", {"url": "http://127.0.0.1:9/x", "filename": "x.txt"})
    assert outcome.error_class == "not_fetched"


def test_a_listing_is_text_and_data(run, project):
    outcome = run("file-lister", "list files in docs")
    assert outcome.message == "2 entries in docs."
    text, data = outcome.artifacts[0].parts
    assert text["text"] == "docs/deep/\ndocs/guide.txt  6 bytes"
    assert data["data"]["entries"][1] == {"path": "docs/guide.txt", "kind": "file", "size": 6}


@pytest.mark.parametrize("text", ["list files", "list", "what is there?", "{}", ":tool list_files"])
def test_without_a_folder_the_project_is_listed(run, project, text):
    outcome = run("file-lister", text)
    assert isinstance(outcome, Ok)
    assert outcome.message == "3 entries in the project folder."


def test_parameters_may_come_as_data(run, project):
    outcome = run("file-lister", "", {"data": {"directory": "docs", "depth": 2, "pattern": "*.md"}})
    assert outcome.artifacts[0].parts[0]["text"] == "docs/deep/notes.md  6 bytes"


def test_a_pattern_goes_all_the_way_down(run, project):
    assert "docs/deep/notes.md" in run("file-lister", "list files matching *.md").artifacts[0].parts[0]["text"]


def test_an_empty_folder_is_empty(run, project):
    (project / "empty").mkdir()
    assert run("file-lister", "list files in empty").artifacts[0].parts[0] == {"text": "(nothing)"}


def test_a_long_listing_says_how_much_more_there_is(run, project):
    (project / "many").mkdir()
    for number in range(205):
        (project / "many" / f"{number:03}.txt").touch()
    outcome = run("file-lister", "list files in many")
    lines = outcome.artifacts[0].parts[0]["text"].splitlines()
    assert (len(lines), lines[-1]) == (201, "and 5 more")
    assert outcome.message == "205 entries in many."
    assert outcome.artifacts[0].parts[1]["data"]["more"] == 5


def test_it_stops_counting_at_some_point(run, project, monkeypatch):
    monkeypatch.setattr("agents.tools.list_files.SHOWN", 1)
    monkeypatch.setattr("agents.tools.list_files.COUNTED", 3)
    lines = run("file-lister", "list files recursively").artifacts[0].parts[0]["text"].splitlines()
    assert lines[-1] == "and at least 2 more"


def test_a_folder_outside_is_not_listed(run, project):
    assert run("file-lister", "list files in ../").error_class == "outside_root"
