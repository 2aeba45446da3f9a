from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.utils import timezone

from bureau.dashboard import tags


@pytest.mark.parametrize(
    ("seconds", "text"), [(5, "just now"), (61, "1 minute ago"), (7300, "2 hours ago"), (90_000, "1 day ago")]
)
def test_ago(seconds, text):
    assert f">{text}</time>" in tags.ago(timezone.now() - timedelta(seconds=seconds))


def test_a_time_says_its_zone_when_hovered_over():
    assert 'title="20 Nov 2026, 09:11:49 UTC"' in tags.ago(datetime(2026, 11, 20, 9, 11, 49, tzinfo=UTC))


@pytest.mark.parametrize(
    ("value", "text"),
    [(640, "640 ms"), (3420, "3.4 s"), (timedelta(seconds=125), "2 min 5 s"), (7_260_000, "2 h 1 min"), (None, "")],
)
def test_duration(value, text):
    assert tags.duration(value) == text


@pytest.mark.parametrize(("value", "text"), [(Decimal("0.001230"), "$0.00123"), (Decimal("2.5"), "$2.50"), (None, "")])
def test_usd(value, text):
    assert tags.usd(value) == text


def test_a_badge_says_the_state_in_words():
    assert tags.badge("input-required") == '<span class="badge ask">input required</span>'
