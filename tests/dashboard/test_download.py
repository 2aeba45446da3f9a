import pytest

from tasks.files import file_part, store_file
from tasks.models import Artifact
from tasks.results import ArtifactDraft
from tests.support.people import end

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


@pytest.fixture
def address(claim, alice):
    stored = store_file(f"user:{alice.pk}", "chart.png", "image/png", b"png")
    parts = [{"text": "<h1>wet</h1>"}, {"data": {"litres": 2}}, file_part(stored)]
    end(claim, "completed", "Done.", ArtifactDraft("report", parts))
    return f"/missions/{claim.task_id}/artifacts/{Artifact.objects.get().pk}"


def test_text_comes_as_a_file_that_no_browser_runs(as_alice, address):
    answer = as_alice.get(f"{address}/1/")
    assert answer.content == b"<h1>wet</h1>"
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="report.md"'


def test_data_comes_as_json(as_alice, address):
    answer = as_alice.get(f"{address}/2/")
    assert answer.content == b'{\n  "litres": 2\n}'
    assert "report.json" in answer.headers["Content-Disposition"]


def test_a_stored_file_is_at_its_own_address(as_alice, address):
    assert as_alice.get(f"{address}/3/").headers["Location"].startswith("/files/")


@pytest.mark.parametrize("number", [0, 4])
def test_there_is_no_other_part(as_alice, address, number):
    assert as_alice.get(f"{address}/{number}/").status_code == 404


def test_nobody_else_may(as_bob, as_olga, address):
    assert as_bob.get(f"{address}/1/").status_code == 404
    assert as_olga.get(f"{address}/1/").status_code == 200


def test_each_button_says_what_it_downloads(as_alice, claim, address):
    text = as_alice.get(f"/missions/{claim.task_id}/").content.decode()
    for said in (">Download the text</a>", ">Download the data</a>", ">Download chart.png</a>"):
        assert said in text
