from datetime import timedelta

import pytest
from django.utils import timezone

from bureau.dashboard import listing
from tasks.models import Task
from tests.support.people import end, start

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


def titles(response) -> list[str]:
    return [row.title for row in response.context["listing"].rows]


def test_it_shows_ones_own_missions_newest_first(as_alice, alice, bob, agent):
    for user, text in ((alice, "First"), (alice, "Second"), (bob, "Not hers")):
        end(start(user, agent, text))
    assert titles(as_alice.get("/")) == ["Second", "First"]
    assert titles(as_alice.get("/", {"whose": "everyone"})) == ["Second", "First"]


def test_it_shows_operators_everybodys_missions_with_their_owners(as_olga, alice, olga, agent):
    end(start(alice, agent, "Alice's"))
    end(start(olga, agent, "Olga's"))
    page = as_olga.get("/")
    assert titles(page) == ["Olga's", "Alice's"]
    assert "Assistant · alice" in page.content.decode()
    assert titles(as_olga.get("/", {"whose": "mine"})) == ["Olga's"]


def test_it_filters_by_state_and_counts(as_alice, alice, agent):
    end(start(alice, agent, "One"))
    end(start(alice, agent, "Two"), "failed")
    end(start(alice, agent, "Three"), "input-required", "How many?")
    start(alice, agent, "Four")
    page = as_alice.get("/", {"state": "waiting"})
    assert titles(page) == ["Three"]
    assert "How many?" in page.content.decode()
    counts = {tab["label"]: tab["count"] for tab in page.context["tabs"]}
    assert counts == {
        "All": "4",
        "Running": "1",
        "Needs an answer": "1",
        "Completed": "1",
        "Failed": "1",
        "Rejected": "0",
        "Canceled": "0",
    }
    assert titles(as_alice.get("/", {"state": "running"})) == ["Four"]


def test_counts_stop_at_their_cap(as_alice, alice, agent, monkeypatch):
    monkeypatch.setattr("bureau.dashboard.missions.COUNT_CAP", 2)
    monkeypatch.setattr(listing, "COUNT_CAP", 2)
    for number in range(4):
        end(start(alice, agent, str(number)))
    assert as_alice.get("/").context["tabs"][0]["count"] == "2+"


def test_an_unknown_filter_is_not_found(as_alice):
    assert as_alice.get("/", {"state": "bogus"}).status_code == 404


def test_pages_follow_each_other_without_gap_or_repeat(as_alice, alice, agent, monkeypatch):
    monkeypatch.setattr(listing, "PAGE_SIZE", 2)
    for number in range(5):
        end(start(alice, agent, str(number)), "failed" if number % 2 else "canceled")
    # The same moment for all: the order must not depend on it alone.
    Task.objects.update(status_at=timezone.now())
    seen, address = [], "/"
    while address:
        page = as_alice.get(address)
        seen += titles(page)
        address = page.context["listing"].older and "/" + page.context["older"]
    assert sorted(seen) == ["0", "1", "2", "3", "4"]


def test_pages_of_several_states_are_merged_in_order(alice, agent, monkeypatch):
    monkeypatch.setattr(listing, "PAGE_SIZE", 2)
    for number, state in enumerate(["completed", "failed", "completed", "failed", "canceled"]):
        end(start(alice, agent, str(number)), state)
    seen, after = [], None
    while True:
        page = listing.list_missions(Task.objects.all(), ("completed", "failed"), after=after)
        seen += [row.title for row in page.rows]
        after = page.older
        if after is None:
            break
    assert seen == ["3", "2", "1", "0"]


@pytest.mark.parametrize("mark", ["nonsense", "Zm9v", "w6TDpA", "MjAyNi0wMS0wMVQwMDowMDowMC9hYg"])
def test_a_broken_page_address_leads_to_the_first_page(as_alice, mark):
    page = as_alice.get("/", {"after": mark}, follow=True)
    assert page.redirect_chain == [("/", 302)]
    assert "That page address is broken" in page.content.decode()


def test_it_searches_titles_and_ids(as_alice, alice, agent):
    end(start(alice, agent, "Water the PLANTS"))
    claim = start(alice, agent, "Feed the cat")
    assert titles(as_alice.get("/", {"q": "plants"})) == ["Water the PLANTS"]
    assert titles(as_alice.get("/", {"q": str(claim.task_id)})) == ["Feed the cat"]
    assert titles(as_alice.get("/", {"q": "100%", "state": "running"})) == []


def test_a_search_looks_at_a_stretch_at_a_time(as_alice, alice, agent, monkeypatch):
    monkeypatch.setattr(listing, "SEARCH_STRETCH", 2)
    for text in ("Old cat", "Dog", "Cow", "New cat"):
        end(start(alice, agent, text))
    first = as_alice.get("/", {"q": "cat"})
    assert titles(first) == ["New cat"]
    assert first.context["listing"].searched_until
    second = as_alice.get("/" + first.context["older"])
    assert titles(second) == ["Old cat"]


def test_a_search_over_two_states_ends_where_the_nearer_stretch_did(alice, agent, monkeypatch):
    monkeypatch.setattr(listing, "SEARCH_STRETCH", 1)
    at = timezone.now()
    for number, (text, state) in enumerate([("cat a", "failed"), ("cat b", "completed"), ("cat c", "failed")]):
        claim = start(alice, agent, text)
        end(claim, state)
        Task.objects.filter(pk=claim.task_id).update(status_at=at + timedelta(seconds=number))
    seen, after = [], None
    while True:
        page = listing.list_missions(Task.objects.all(), ("completed", "failed"), "cat", after)
        seen += [row.title for row in page.rows]
        after = page.older
        if after is None:
            break
    assert seen == ["cat c", "cat b", "cat a"]


def test_a_poll_is_told_when_nothing_is_new(as_alice, alice, agent):
    claim = start(alice, agent)
    seen = as_alice.get("/").context["listing"].signature
    ask = {"seen": seen}
    assert as_alice.get("/", ask, headers={"HX-Request": "true"}).status_code == 204
    end(claim)
    answer = as_alice.get("/", ask, headers={"HX-Request": "true"})
    assert answer.status_code == 200
    assert b"<html" not in answer.content
    assert b'id="region"' in answer.content


def test_it_polls_only_while_something_runs(as_alice, alice, agent):
    claim = start(alice, agent)
    assert b"every 3s" in as_alice.get("/").content
    end(claim)
    assert b"every 3s" not in as_alice.get("/").content


def test_the_first_visit_suggests_what_to_try(as_alice, agent):
    page = as_alice.get("/").content.decode()
    assert "No missions yet" in page
    assert "/missions/new/?agent=assistant&amp;text=Water%20the%20plants" in page


def test_titles_are_escaped(as_alice, alice, agent):
    end(start(alice, agent, "<script>alert(1)</script>"))
    page = as_alice.get("/").content.decode()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def test_the_number_of_queries_does_not_grow(as_olga, alice, agent, django_assert_max_num_queries):
    for number in range(10):
        end(start(alice, agent, str(number)))
    with django_assert_max_num_queries(15):
        as_olga.get("/")
