"""The printed report: what it was measured on, the tables, and the ratios that carry goals."""

import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from tests.bench.measure import Sample, Table
from tests.bench.stores import Stores

BUSY_LOAD = 0.5
"""The load average above which the first lines warn that somebody else is using the machine."""
PACKAGES = (
    "Django",
    "celery",
    "kombu",
    "redis",
    "hiredis",
    "psycopg",
    "uvicorn",
    "uvloop",
    "httptools",
    "a2a-sdk",
    "asyncpg",
)


@dataclass(frozen=True)
class Figure:
    """One line of the second section."""

    what: str
    value: str
    how: str = ""


@dataclass(frozen=True)
class Ratio:
    """One line of the summary: Bureau's figure by another target's, and the goal for it, if there is one."""

    title: str
    under: str
    value: Callable[[Sample], float]
    goal: str = ""
    is_reached: Callable[[float], bool] | None = None


def cpu(sample: Sample) -> float:
    return sample.cpu


def rate(sample: Sample) -> float:
    return sample.rate


RATIOS = (
    Ratio("CPU per request, by floor A's", "floor-a", cpu, "at most 1.5", lambda ratio: ratio <= 1.5),
    Ratio("CPU per request, by floor B's", "floor-b", cpu),
    Ratio("req/s, by a2a-sdk's with its database", "sdk-database", rate, "at least 4", lambda ratio: ratio >= 4),
    Ratio("req/s, by a2a-sdk's in memory", "sdk-memory", rate),
)


def machine(stores: Stores) -> Iterable[str]:
    """What it runs on: processors, Python, servers, the packages that matter, and who else is busy here."""
    servers = f"{stores.postgres.version()}, {stores.redis.version()}"
    yield f"{os.cpu_count()} cores, Python {platform.python_version()}, {servers}"
    yield ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    load = os.getloadavg()[0]
    if load > BUSY_LOAD:
        yield f"The machine is busy (load average {load:.1f}): trust no figure below, and the ratios only roughly."


def costs(table: Table, titles: Mapping[str, str], levels: Sequence[int]) -> Iterable[str]:
    """Cost per task: the medians of the rounds, and the spread of the CPU figure."""
    for level in levels:
        yield (
            f"  {f'concurrency {level}':44}{'req/s':>8}{'p50 ms':>9}{'p99 ms':>9}{'CPU ms':>9}{'(min-max)':>14}"
            f"{'PostgreSQL':>12}{'Redis':>7}{'client':>8}"
        )
        for name, title in titles.items():
            yield _row(table, title, name, level)
        yield ""


def _row(table: Table, title: str, name: str, level: int) -> str:
    def median(field: str) -> float:
        return table.median(name, level, lambda sample: getattr(sample, field)) or 0.0

    used = [sample.cpu for sample in table.of(name, level)]
    spread = f"{min(used):.2f}-{max(used):.2f}"
    return (
        f"  {title:44}{median('rate'):8.0f}{median('p50'):9.2f}{median('p99'):9.2f}"
        f"{median('cpu'):9.2f}{spread:>14}{median('postgres'):12.2f}{median('redis'):7.2f}{median('client'):8.2f}"
    )


def figures(found: Iterable[Figure]) -> Iterable[str]:
    """The lines of the second section."""
    for figure in found:
        yield f"  {figure.what:44}{figure.value:>16}   {figure.how}"


def summary(table: Table, levels: Sequence[int]) -> Iterable[str]:
    """Bureau beside each of the others, and what came of the goals; nothing for what was not measured."""
    lines = [line for ratio in RATIOS if (line := _summed_up(ratio, table, levels))]
    if lines:
        yield "\nBureau beside the others: ratios, each the median of those within a round\n"
        heads = "".join(f"{f'c={level}':>8}" for level in levels)
        yield f"  {'':44}{heads}   goal"
        yield from lines


def _summed_up(ratio: Ratio, table: Table, levels: Sequence[int]) -> str:
    values = {level: table.ratio("bureau", ratio.under, level, ratio.value) for level in levels}
    if None in values.values():
        return ""
    found = {level: value for level, value in values.items() if value is not None}
    line = f"  {ratio.title:44}{''.join(f'{value:8.2f}' for value in found.values())}"
    if ratio.is_reached is None:
        return line
    missed = [f"c={level}" for level, value in found.items() if not ratio.is_reached(value)]
    verdict = f"MISSED at {', '.join(missed)}" if missed else "reached"
    return f"{line}   {ratio.goal}: {verdict}"
