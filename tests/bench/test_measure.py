"""The arithmetic of the benchmark: what it prints must mean what it says."""

import pytest

from tests.bench.measure import Sample, Table, percentile
from tests.bench.report import summary


def sample(target: str, cpu: float, concurrency: int = 8) -> Sample:
    return Sample(target, concurrency, 100, rate=100, p50=1, p99=2, cpu=cpu, postgres=0, redis=0, client=0)


@pytest.mark.parametrize(("fraction", "value"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.0, 1)])
def test_it_takes_the_nearest_rank(fraction: float, value: int) -> None:
    assert percentile(list(range(100, 0, -1)), fraction) == value


def test_one_value_is_every_percentile() -> None:
    assert percentile([7.0], 0.5) == percentile([7.0], 0.99) == 7.0


def test_a_drift_of_the_machine_does_not_change_a_ratio() -> None:
    slower_every_round = [sample(name, cpu * drift) for drift in (1, 2, 4) for name, cpu in (("a", 3), ("b", 2))]
    assert Table(slower_every_round).ratio("a", "b", 8, lambda s: s.cpu) == 1.5


def test_there_is_no_ratio_to_what_did_not_run() -> None:
    table = Table([sample("a", 3), sample("b", 2, concurrency=1)])
    assert table.ratio("a", "b", 8, lambda s: s.cpu) is None
    assert table.median("b", 8, lambda s: s.cpu) is None


def test_the_summary_says_where_a_goal_was_missed() -> None:
    cpu = {("bureau", 1): 4, ("floor-a", 1): 2, ("bureau", 8): 3, ("floor-a", 8): 2}
    table = Table([sample(name, value, level) for (name, level), value in cpu.items()])
    *_, line = summary(table, (1, 8))
    assert " ".join(line.split()) == "CPU per request, by floor A's 2.00 1.50 at most 1.5: MISSED at c=1"


def test_the_summary_leaves_out_what_did_not_run() -> None:
    assert not list(summary(Table([sample("bureau", 3)]), (8,)))
