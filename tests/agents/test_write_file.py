"""`write_file`: into the output folder, never over anything, never through a link, elsewhere only with a yes."""

import os
import signal

import pytest

from agents.outcomes import Blocked, Error, Ok
from agents.tools.output import save, target_of
from tasks.files import read_file
from tasks.models import StoredFile

pytestmark = pytest.mark.django_db


@pytest.fixture
def output(project):
    return project / "output"


def files_in(folder) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def test_it_writes_a_new_file_and_keeps_a_copy(run, output):
    outcome = run("assistant", "write to notes/today.md: Remember the milk.")
    assert isinstance(outcome, Ok)
    assert (output / "notes" / "today.md").read_text() == "Remember the milk."
    part = outcome.artifacts[0].parts[0]
    assert (outcome.artifacts[0].name, part["filename"]) == ("notes/today.md", "today.md")
    assert read_file(StoredFile.objects.get(pk=part["file"])) == b"Remember the milk."


def test_it_overwrites_nothing(output):
    saved = [save(target_of("a.md"), text).path for text in ("one", "two", "one", "two", "", "")]
    assert saved == ["a.md", "a-2.md", "a.md", "a-2.md", "a-3.md", "a-3.md"]
    assert (output / "a.md").read_text() == "one"


def test_a_link_is_never_written_through(output, tmp_path):
    output.mkdir()
    (output / "out").symlink_to(tmp_path)
    (output / "a.md").symlink_to(tmp_path / "stolen.md")
    assert save(target_of("a.md"), "text").path == "a-2.md"
    with pytest.raises(Exception, match="a link"):
        save(target_of("out/b.md"), "text")
    assert not (tmp_path / "stolen.md").exists()
    assert not (tmp_path / "b.md").exists()


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../../x.md", "~/x.md", ".env", "keys/server.pem", ".git/config", "a\0b", " ", "output"]
)
def test_what_is_elsewhere_or_secret_is_refused(run, project, path):
    before = files_in(project)
    outcome = run("assistant", f':tool write_file {{"path": "{path.replace(chr(0), chr(92) + "u0000")}", "text": "x"}}')
    assert isinstance(outcome, Error | Blocked)
    assert files_in(project) == before


def test_a_text_above_the_limit_is_refused(run, settings, output):
    settings.BUREAU_FILE_LIMIT_BYTES = 10
    outcome = run("assistant", "write to a.md: eleven bytes")
    assert (outcome.error_class, files_in(output) if output.exists() else []) == ("file_too_large", [])


def test_outside_the_output_folder_it_asks_first(run, follow_up, project):
    asked = run("assistant", ':tool write_file {"path": "../notes.md", "text": "Hello"}')
    assert isinstance(asked, Blocked)
    assert f"Write 5 bytes to notes.md in {project}" in asked.why
    assert not (project / "notes.md").exists()
    assert isinstance(follow_up(asked, "yes"), Ok)
    assert (project / "notes.md").read_text() == "Hello"


def test_a_no_is_a_no(run, follow_up, project):
    refused = follow_up(run("assistant", ':tool write_file {"path": "../notes.md", "text": "Hello"}'), "no")
    assert (refused.error_class, (project / "notes.md").exists()) == ("not_confirmed", False)


def test_a_yes_holds_for_that_payload_only(run, follow_up, project):
    first = run("assistant", ':tool write_file {"path": "../notes.md", "text": "Hello"}')
    assert isinstance(follow_up(first, "yes"), Ok)
    again = run("assistant", ':tool write_file {"path": "../notes.md", "text": "Hello!"}', task=None)
    assert isinstance(again, Blocked)
    assert again.about["digest"] != first.about["digest"]


def test_nothing_half_written_is_left(output, monkeypatch):
    monkeypatch.setattr(os, "link", lambda *args, **more: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(Exception, match="could not be written"):
        save(target_of("a.md"), "text")
    assert files_in(output) == []


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="only Linux has files without a name")
def test_a_killed_worker_leaves_no_draft(output):
    def die(*_args, **_more):
        os.kill(os.getpid(), signal.SIGKILL)

    worker = os.fork()
    if not worker:
        os.link = die
        save(target_of("a.md"), "text")
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(worker, 0)[1]) == signal.SIGKILL
    assert (output.is_dir(), files_in(output)) == (True, [])


def test_a_file_system_without_nameless_files_will_do(output, monkeypatch):
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    assert [save(target_of("a.md"), text).path for text in ("one", "two", "one")] == ["a.md", "a-2.md", "a.md"]
    assert files_in(output) == ["a-2.md", "a.md"]
