"""The measurement itself: closed-loop load on one target, CPU of its processes, medians of rounds."""

import asyncio
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.bench.client import BadReply, Connection
from tests.bench.processes import ServerFailed, cpu_seconds
from tests.bench.stores import Stores
from tests.bench.targets import Target, WrongAnswer

SETTLE_SECONDS = 0.15  # what a server still does for a task after its answer is counted too


@dataclass(frozen=True)
class Sample:
    """One round of load. Times in milliseconds; the CPU columns are per request."""

    target: str
    concurrency: int
    requests: int
    rate: float  # requests per second
    p50: float
    p99: float
    cpu: float  # all processes of the target
    postgres: float  # 0.0 when it runs on another machine
    redis: float
    client: float  # the load generator itself, not counted anywhere


def percentile(values: Sequence[float], fraction: float) -> float:
    """The smallest value that at least `fraction` of `values` do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]


async def _load(target: Target, concurrency: int, seconds: float, most: int) -> tuple[list[float], float]:
    """Keep `concurrency` requests open for `seconds`, at most `most` in all; latencies and elapsed time."""
    latencies: list[float] = []
    left = most
    started = time.perf_counter()

    async def caller() -> None:
        nonlocal left
        connection = Connection(target.url, target.headers)
        try:
            while left > 0 and time.perf_counter() - started < seconds:
                left -= 1
                text = f"echo {left}"
                body = target.request(text)
                sent = time.perf_counter()
                reply = await connection.call(body)
                latencies.append((time.perf_counter() - sent) * 1000)
                target.check(reply, text)
        finally:
            connection.close()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(caller())
    except* (BadReply, WrongAnswer, OSError, EOFError, TimeoutError) as failed:
        first = failed.exceptions[0]
        raise ServerFailed(f"{target.name}: {type(first).__name__} {first}\n{target.log_tail()}") from first
    return latencies, time.perf_counter() - started


async def measure(target: Target, stores: Stores, concurrency: int, seconds: float, most: int = 100_000) -> Sample:
    """One round on one target. Raises ServerFailed if one request failed: a benchmark of errors is none."""
    before, stores_before, own_before = cpu_seconds(target.processes()), stores.cpu(), time.process_time()
    latencies, elapsed = await _load(target, concurrency, seconds, most)
    own = time.process_time() - own_before
    await asyncio.sleep(SETTLE_SECONDS)
    cpu, stores_after = cpu_seconds(target.processes()) - before, stores.cpu()
    count = len(latencies)

    def per_request(used: float) -> float:
        return max(0.0, used) * 1000 / count

    return Sample(
        target=target.name,
        concurrency=concurrency,
        requests=count,
        rate=count / elapsed,
        p50=percentile(latencies, 0.50),
        p99=percentile(latencies, 0.99),
        cpu=per_request(cpu),
        postgres=per_request(stores_after[0] - stores_before[0]),
        redis=per_request(stores_after[1] - stores_before[1]),
        client=per_request(own),
    )


@dataclass(frozen=True)
class Table:
    """All samples of a run; round `i` of every target was measured next to round `i` of the others."""

    samples: Sequence[Sample]

    def of(self, target: str, concurrency: int) -> list[Sample]:
        return [s for s in self.samples if s.target == target and s.concurrency == concurrency]

    def median(self, target: str, concurrency: int, value: Callable[[Sample], float]) -> float | None:
        values = [value(sample) for sample in self.of(target, concurrency)]
        return statistics.median(values) if values else None

    def ratio(self, over: str, under: str, concurrency: int, value: Callable[[Sample], float]) -> float | None:
        """The median over rounds of `value` of one target by that of another: drift cancels out."""
        pairs = zip(self.of(over, concurrency), self.of(under, concurrency), strict=False)
        ratios = [value(a) / value(b) for a, b in pairs if value(b)]
        return statistics.median(ratios) if ratios else None


@dataclass(frozen=True)
class Plan:
    """How much is measured: `rounds` of `seconds` for each target at each level of concurrency."""

    levels: Sequence[int]
    rounds: int
    seconds: float


async def interleaved(targets: Sequence[Target], stores: Stores, plan: Plan, say: Callable[[str], None]) -> Table:
    """Warm every target up, then measure A B C, A B C ..., one at a time, at each concurrency."""
    for target in targets:
        say(f"warming up {target.name}")
        for level in plan.levels:
            await measure(target, stores, level, min(1.0, plan.seconds))
    samples = []
    for level in plan.levels:
        for number in range(plan.rounds):
            say(f"concurrency {level}, round {number + 1} of {plan.rounds}")
            for target in targets:
                samples.append(await measure(target, stores, level, plan.seconds))
    return Table(samples)
