"""What a mission and all below it cost, as its page and `ask --json` say it."""

from decimal import Decimal

import pytest

from agents.costs import bill_of
from agents.models import Budget, Decision
from tasks.models import SubPlan, Task
from tests.orchestration.conftest import quick, settle
from tests.orchestration.script import DIAMOND, answer, plan, triage, writes

__all__ = ["quick", "settle"]

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]


@pytest.fixture
def mission(settle, model):
    model.add(triage(needs_plan=True), plan(*DIAMOND))
    model.add(*(writes(key) for key in ("facts", "left", "right", "middle", "report")), answer())
    return settle("Find out all about it and write a report")


def test_it_is_the_sum_over_the_whole_tree(mission):
    bill = bill_of(mission)
    budget = Budget.objects.get(pk=mission.pk)
    assert (bill.total.calls, bill.own.calls) == (8, 3)
    assert (bill.total.calls, bill.total.tokens_in + bill.total.tokens_out) == (budget.calls, budget.tokens)
    assert bill.total.usd == budget.usd > bill.own.usd > 0
    assert bill.room is not None
    assert (bill.room.calls, bill.room.usd) == (92, budget.usd_limit - budget.usd)


def test_each_sub_plan_has_its_own(mission):
    parts = [bill_of(one.task).total for one in SubPlan.objects.select_related("task")]
    assert [one.calls for one in parts] == [1] * 5
    bill = bill_of(mission)
    assert sum(one.usd for one in parts) + bill.own.usd == bill.total.usd


def test_a_model_without_a_price_is_counted_and_not_priced(mission):
    Decision.objects.create(task=mission, point="plan", brain="claude", model="llama", attempts=2, input_tokens=10)
    bill = bill_of(mission)
    assert (bill.total.calls, bill.total.unpriced) == (10, 1)
    Decision.objects.exclude(model="llama").delete()
    assert bill_of(mission).total.usd is None


def test_what_the_rules_decide_costs_nothing(settle):
    bill = bill_of(settle("List the agents"))
    assert (bill.total.calls, bill.total.usd, bill.room) == (0, None, None)


def test_it_is_json(mission):
    found = bill_of(mission).as_json()
    assert (found["calls"], found["own"]["calls"], found["left"]["calls"]) == (8, 3, 92)
    assert Decimal(found["usd"]) == bill_of(mission).total.usd


def test_the_page_shows_the_tree_and_each_part(mission, admin_client):
    text = admin_client.get(f"/missions/{mission.pk}/").content.decode()
    total, own = bill_of(mission).total, bill_of(mission).own
    for said in (f"${total.usd.normalize():f}", "8 calls to the model", f"${own.usd.normalize():f} of it for coord"):
        assert said in text
    part = bill_of(Task.objects.get(parent=mission, title="The facts")).total
    assert f"researcher · ${part.usd.normalize():f}" in text
    assert "92 calls" in text


def test_htmx_asks_for_what_changed_below(mission, admin_client):
    address = f"/missions/{mission.pk}/parts/"
    first = admin_client.get(address).content.decode()
    assert 'hx-swap-oob="innerHTML:#cost"' in first
    assert "hx-get" not in first
    from bureau.dashboard.plan import signature_of

    assert admin_client.get(address, {"seen": signature_of(mission)}).status_code == 204
    assert admin_client.get(address, {"seen": "something else"}).status_code == 200
