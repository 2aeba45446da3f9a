"""`python -m tests.bench`: start everything, measure it in one run, print tables and ratios."""

import argparse
import asyncio
import contextlib
import dataclasses
import json
import signal
import sys
import tempfile
from collections.abc import Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.bench import lifecycle, report
from tests.bench.client import BadReply
from tests.bench.listing import Listing
from tests.bench.measure import Plan, Table, interleaved
from tests.bench.processes import ServerFailed
from tests.bench.stores import StoreMissing, Stores, stores
from tests.bench.targets import (
    TARGETS,
    BureauFleet,
    SdkDatabase,
    SdkMemory,
    Target,
    WrongAnswer,
    running,
)

LEVELS = (1, 8, 32)


def arguments() -> argparse.Namespace:
    names = [target.name for target in TARGETS]
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short rounds and few: a look, not a figure")
    parser.add_argument("--only", action="append", choices=names, help="measure this one (repeatable)")
    parser.add_argument("--rounds", type=int, help="rounds per target and concurrency (default 5)")
    parser.add_argument("--seconds", type=float, help="length of a round (default 2.5)")
    parser.add_argument("--million", action="store_true", help="list among a million tasks, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every round to FILE")
    return parser.parse_args()


def out(line: str = "") -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def progress(line: str) -> None:
    sys.stderr.write(f"# {line}\n")


def show(lines: Iterable[str]) -> None:
    for line in lines:
        out(line)


def start(kinds: Sequence[type[Target]], found: Stores, folder: Path, stack: contextlib.ExitStack) -> list[Target]:
    """Start one target of each kind; they end with the stack."""
    targets = []
    for kind in kinds:
        progress(f"starting {kind.name}")
        targets.append(stack.enter_context(running(kind(found, folder))))
    return targets


def cost_per_task(options: argparse.Namespace, found: Stores, folder: Path) -> Table:
    """Measure and print the first section."""
    kinds = [kind for kind in TARGETS if not options.only or kind.name in options.only]
    rounds, seconds = (2, 0.7) if options.quick else (5, 2.5)
    plan = Plan(LEVELS, options.rounds or rounds, options.seconds or seconds)
    with contextlib.ExitStack() as stack:
        targets = start(kinds, found, folder, stack)
        table = asyncio.run(interleaved(targets, found, plan, progress))
    out(f"\nA waited echo SendMessage: medians of {plan.rounds} rounds of {plan.seconds:g} s, CPU per request\n")
    show(report.costs(table, {kind.name: kind.title for kind in kinds}, LEVELS))
    return table


def life_of_a_task(options: argparse.Namespace, found: Stores, folder: Path) -> None:
    """Measure and print the second section."""
    scale = 1 if options.quick else 5

    def measured(figures: Coroutine[Any, Any, list[report.Figure]]) -> None:
        show(report.figures(asyncio.run(figures)))

    with contextlib.ExitStack() as stack:
        fleet, *others = start((BureauFleet, SdkDatabase, SdkMemory), found, folder, stack)
        assert isinstance(fleet, BureauFleet)
        out("The life of a task\n")
        measured(lifecycle.idle_subscribers(fleet, 200, 1.0 * scale))
        measured(lifecycle.time_to_stop(fleet, 20 * scale))
        measured(lifecycle.time_to_stop_work(fleet, 5 * scale))
        measured(lifecycle.time_to_recover(fleet, 1 if options.quick else 3))
        with fleet.worker():
            measured(lifecycle.first_events([fleet, *others], scale, 40))
            measured(listings(fleet, (100_000, 1_000_000) if options.million else (100_000,), 20 * scale))


async def listings(fleet: BureauFleet, sizes: Iterable[int], count: int) -> list[report.Figure]:
    listing = Listing(fleet)
    try:
        return [figure for rows in sizes for figure in await listing.among(rows, count)]
    finally:
        listing.close()


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that databases are dropped, servers ended
    try:
        with (
            tempfile.TemporaryDirectory(prefix="bureau-bench-") as folder,
            stores(Path(folder)) as found,
        ):
            show(report.machine(found))
            table = cost_per_task(options, found, Path(folder))
            if options.json:
                rows = [dataclasses.asdict(sample) for sample in table.samples]
                options.json.write_text(json.dumps(rows, indent=1))
            if not options.only or "bureau" in options.only:
                life_of_a_task(options, found, Path(folder))
            show(report.summary(table, LEVELS))
    except (StoreMissing, ServerFailed, WrongAnswer, BadReply, TimeoutError) as error:
        sys.stderr.write(f"{error or 'A server did not answer in time.'}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
