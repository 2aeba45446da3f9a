"""Two Bureaus, each a whole process tree of its own, that pass work on to each other."""

import json

import pytest

from tests.shell.support import clean_env, manage, start_manage, wait_for_output
from tests.support.servers import free_port


class Bureau:
    """One of the two: its address, and its commands."""

    def __init__(self, folder):
        folder.mkdir()
        self.folder = folder
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.env = clean_env(folder / "data") | {"BUREAU_PORT": str(port)}

    def manage(self, *arguments, codes=(0,)):
        done = manage(*arguments, env=self.env)
        assert done.returncode in codes, done.stderr
        return done.stdout

    def meet(self, url, slug):
        """Take an agent into the directory, and show it to others: only published agents have a card."""
        self.manage("agents", "add", url, "--slug", slug)
        self.shell(f"Agent.objects.filter(slug={slug!r}).update(is_published=True)")

    def shell(self, code):
        return self.manage("shell", "-v", "0", "-c", f"from directory.models import Agent; {code}")


@pytest.fixture
def bureaus(tmp_path):
    both = [Bureau(tmp_path / name) for name in ("north", "south")]
    running = []
    try:
        for one in both:
            running.append(start_manage("up", env=one.env, folder=one.folder))
        for process in running:
            wait_for_output(process, "Bureau runs at", 180)
        yield both
    finally:
        for process in running:
            if process.process.poll() is None:
                process.stop()


def ask(bureau, slug, text, *more):
    """The task that a stranger's message to an agent comes to, and the exit status's meaning."""
    arguments = ("send", f"{bureau.url}/a2a/{slug}/", text, "--json", "--seconds", "150", *more)
    return json.loads(bureau.manage(*arguments, codes=(0, 2, 3, 4)))


def said(task):
    return task["status"]["message"]["parts"][0]["text"]


def test_a_question_comes_up_two_levels_and_the_answer_goes_down(bureaus):
    north, south = bureaus
    south.meet(f"{north.url}/a2a/file-reader/", "reader")
    north.meet(f"{south.url}/a2a/reader/", "far-reader")

    assert "far-reader" in json.dumps(ask(north, "directory", ":tool list_agents")["artifacts"])
    # What a Bureau elsewhere is told of others: by its address there, and never by their own.
    south.manage("agents", "add", f"{north.url}/a2a/echo/", "--slug", "hidden")
    north.meet(f"{south.url}/a2a/directory/", "far-directory")
    told = json.dumps(ask(north, "far-directory", ":tool list_agents")["artifacts"])
    assert f"{south.url}/a2a/hidden/" in told
    assert f"{north.url}/a2a/echo/" not in told

    asked = ask(north, "far-reader", "Read a file")
    assert asked["status"]["state"] == "input-required"
    assert "file" in said(asked)
    answered = ask(north, "far-reader", "README.md", "--task", asked["id"])
    assert answered["status"]["state"] == "completed"
    assert "# Bureau" in json.dumps(answered["artifacts"])
    # One task at each level, the question's and the answer's.
    assert south.shell("from agents.models import RemoteLeg; print(RemoteLeg.objects.count())").strip() == "1"
    for bureau in bureaus:
        assert bureau.shell("from tasks.models import Task; print({*Task.objects.values_list('state')})").strip() == (
            "{('completed',)}"
        )


def test_a_loop_is_refused_with_its_path(bureaus):
    north, south = bureaus
    south.meet(f"{north.url}/a2a/echo/", "circle")
    north.meet(f"{south.url}/a2a/circle/", "ring")
    south.shell(f"Agent.objects.filter(slug='circle').update(url='{north.url}/a2a/ring/')")

    task = ask(north, "ring", "Round and round")
    assert task["status"]["state"] == "rejected"
    assert "has come back to an agent that passed it on before" in said(task)
    assert "/ring → " in said(task) and "/circle → " in said(task)
    # Once around: the ring was asked twice, and the circle once.
    count = "from tasks.models import Task; print(Task.objects.count())"
    assert (north.shell(count).strip(), south.shell(count).strip()) == ("2", "1")
