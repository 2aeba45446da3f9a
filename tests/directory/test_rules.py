"""Who may delegate to whom, and how far."""

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from directory.exceptions import DelegationDenied, HopLimitReached, LoopDetected
from directory.models import Agent, DelegationRule, Skill
from directory.rules import (
    HOPS,
    MAX_HOPS,
    Party,
    check_delegation,
    decide,
    may_delegate,
    next_hops,
    own_id,
    path_of,
    verdicts,
)

CHIEF = Party(1, "coordinator")
SCRIBE = Party(2, "writer", frozenset({"text", "public"}))


def rule(effect, priority=0, pk=None, **fields):
    return DelegationRule(effect=effect, priority=priority, pk=pk, **fields)


CASES = [
    ([], True),
    ([rule("deny")], False),
    ([rule("allow")], True),
    ([rule("deny", source_role="coordinator")], False),
    ([rule("deny", source_role="writer")], True),
    ([rule("deny", source_agent_id=1)], False),
    ([rule("deny", source_agent_id=2)], True),
    ([rule("deny", target_agent_id=2)], False),
    ([rule("deny", target_agent_id=1)], True),
    ([rule("deny", target_role="writer")], False),
    ([rule("deny", target_tag="Public")], False),
    ([rule("deny", target_tag="secret")], True),
    ([rule("deny", source_role="coordinator", target_role="painter")], True),
    ([rule("deny"), rule("allow", 1, target_role="writer")], True),
    ([rule("deny", 1), rule("allow", 0)], False),
    ([rule("deny"), rule("allow")], False),
    ([rule("deny", is_enabled=False)], True),
    ([rule("deny", -1), rule("allow", -2)], False),
]


@pytest.mark.parametrize(("rules", "is_allowed"), CASES)
def test_the_highest_priority_that_fits_decides_and_deny_wins_a_draw(rules, is_allowed):
    assert decide(CHIEF, SCRIBE, rules).is_allowed is is_allowed
    assert decide(CHIEF, SCRIBE, rules[::-1]).is_allowed is is_allowed


def test_the_reason_names_the_rule():
    verdict = decide(CHIEF, SCRIBE, [rule("deny", pk=7, note="Holidays.")])
    assert verdict.reason == "Rule 7 forbids it: Holidays."


# --- With rows -----------------------------------------------------------------------------------


@pytest.fixture
def chief(db):
    return Agent.objects.create(slug="chief", name="Chief", role="coordinator", handler="x")


@pytest.fixture
def scribe(db):
    agent = Agent.objects.create(slug="scribe", name="Scribe", role="writer", kind="remote")
    Skill.objects.create(agent=agent, skill_id="write", name="Write", tags=["Text"])
    return agent


def test_it_is_open_inside(chief, scribe):
    check_delegation(chief, scribe)
    check_delegation(None, scribe)


def test_a_rule_forbids(chief, scribe):
    DelegationRule.objects.create(effect="deny", source_agent=chief, target_tag="text")
    with pytest.raises(DelegationDenied, match=r"chief may not pass work on to scribe\. Rule \d+ forbids it"):
        check_delegation(chief, scribe)
    check_delegation(scribe, scribe)
    check_delegation(None, scribe)


@pytest.mark.parametrize("fields", [{"is_enabled": False}, {"quarantined_at": timezone.now()}])
def test_no_rule_opens_what_is_disabled_or_in_quarantine(chief, scribe, fields):
    DelegationRule.objects.create(effect="allow", priority=99)
    for name, value in fields.items():
        setattr(scribe, name, value)
    assert not may_delegate(chief, scribe).is_allowed
    assert not may_delegate(None, scribe).is_allowed


def test_many_targets_at_once(chief, scribe, django_assert_num_queries):
    DelegationRule.objects.create(effect="deny", target_role="writer")
    targets = list(Agent.objects.prefetch_related("skills"))
    with django_assert_num_queries(2):  # the rules, and the asker's own skills
        found = verdicts(chief, targets)
    assert {key: verdict.is_allowed for key, verdict in found.items()} == {chief.pk: True, scribe.pk: False}


@pytest.mark.parametrize(
    "fields",
    [{"source_role": "writer", "source_agent_id": 1}, {"target_role": "writer", "target_tag": "text"}],
)
def test_a_rule_has_one_source_and_one_target(chief, fields):
    fields = {name: chief.pk if name.endswith("_id") else value for name, value in fields.items()}
    with pytest.raises(IntegrityError), transaction.atomic():
        DelegationRule.objects.create(effect="deny", **fields)
    assert not DelegationRule.objects.exists()


# --- Hops ----------------------------------------------------------------------------------------


def test_each_hop_is_added_and_the_rest_is_kept():
    first = next_hops({"other": 1}, "a")
    second = next_hops(first, "b")
    assert second == {"other": 1, HOPS: {"path": ["a", "b"]}}
    assert first == {"other": 1, HOPS: {"path": ["a"]}}


def test_a_loop_is_refused_with_its_path():
    metadata = next_hops(next_hops(next_hops(None, "a"), "b"), "c")
    with pytest.raises(LoopDetected, match="b → c → b"):
        next_hops(metadata, "b")


def test_a_chain_has_an_end():
    metadata = None
    for number in range(MAX_HOPS):
        metadata = next_hops(metadata, f"agent-{number}")
    with pytest.raises(HopLimitReached, match="8 times already"):
        next_hops(metadata, "one-more")
    with pytest.raises(HopLimitReached):
        next_hops({HOPS: {"path": ["x"] * 10_000}}, "one-more")
    with pytest.raises(HopLimitReached):
        next_hops({HOPS: {"path": ["x"]}}, "one-more", limit=1)


@pytest.mark.parametrize("hops", [None, 7, [], {}, {"path": "a"}, {"path": {"a": 1}}, {"path": [1, None, {}]}])
def test_what_is_illegible_is_no_path(hops):
    assert path_of({HOPS: hops}) == []
    assert next_hops({HOPS: hops}, "a")[HOPS] == {"path": ["a"]}


def test_a_hostile_path_is_cut():
    assert len(path_of({HOPS: {"path": ["x" * 9000]}})[0]) == 120


def test_two_bureaus_tell_their_agents_apart(settings):
    here = own_id("echo")
    assert here == own_id("echo") != own_id("other")
    settings.SECRET_KEY = "another Bureau"
    assert own_id("echo") != here
    assert settings.SECRET_KEY not in own_id("echo")
