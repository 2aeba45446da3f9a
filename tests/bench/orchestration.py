"""`python -m tests.bench.orchestration`: what it costs to run a mission by a plan.

One process, an SQLite database of its own, and as many slots as there are sub-plans side by side. The model is a
scripted server in a process of its own that answers after a fixed time. The doorbell rings within the process, so the
figures hold no broker, except the last, for which there is a worker process. What is compared was measured in one run.
"""

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

SLOTS = 4
LONGEST_MISSION = 60.0
LOOK_SECONDS = 0.01
GOAL = "Find out all about it and write a report"


@dataclass(frozen=True)
class Run:
    """One mission: wall and CPU time in seconds, calls to the model, and messages that were sent.

    `coordinating` is the time in turns of the mission itself without that in which the model was asked;
    `statements` are those of SQL in all turns.
    """

    seconds: float
    cpu: float
    calls: int
    messages: int
    tasks: int
    turns: int
    coordinating: float
    statements: int


def out(line: str = "") -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.orchestration", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model-seconds", type=float, default=0.3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bureau-bench-") as folder:
        os.environ |= {"BUREAU_DATA": folder, "DJANGO_SETTINGS_MODULE": "bureau.settings", "BUREAU_LOG_LEVEL": "ERROR"}
        sys.path[:0] = ["platform"]
        import django

        django.setup()
        _measure(options.rounds, options.model_seconds)


def _measure(rounds: int, delay: float) -> None:
    from django.conf import settings
    from django.core.management import call_command

    from agents.seeding import seed
    from tests.orchestration.script import DIAMOND

    call_command("migrate", verbosity=0)
    seed()
    with _model() as api:
        settings.ANTHROPIC_BASE_URL = api.url
        for script in (_simple(0.0), _planned(DIAMOND, 0.0)):  # what is loaded at first use is not measured
            _mission(api, script)
        _diamonds(api, rounds, delay)
        _calls(api, settings)
        _grain(api, settings, rounds, delay)
        _with_a_worker(api, settings, rounds, delay)


class Model:
    """The scripted server in its own process: what it takes to pretend to be a model is not ours."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe
        self.url: str = pipe.recv()

    def follow(self, script: Sequence[Any]) -> int:
        """Take this script from now on. Returns how many requests came under the last one."""
        self._pipe.send(script)
        count: int = self._pipe.recv()
        return count


@contextmanager
def _model() -> Iterator[Model]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve_model, args=(theirs,), daemon=True)
    process.start()
    try:
        yield Model(ours)
    finally:
        ours.send(None)
        process.join()


def serve_model(pipe: Any) -> None:
    """In the model's process: one script after the other, until None comes."""
    from tests.support.messages_api import running

    with running() as api:
        pipe.send(api.url)
        while (script := pipe.recv()) is not None:
            pipe.send(len(api.requests))
            api.reset()
            api.add(*script)


def _diamonds(api: Any, rounds: int, delay: float) -> None:
    from tests.orchestration.script import DIAMOND

    slow = [_mission(api, _planned(DIAMOND, delay)) for _ in range(rounds)]
    quick = [_mission(api, _planned(DIAMOND, 0.0)) for _ in range(rounds)]
    # triage, plan, facts, one of the three side by side, report, synthesis
    critical = 6 * delay
    makespan = statistics.median(run.seconds for run in slow)
    idle = statistics.median(run.seconds for run in quick)
    coordinating = statistics.median(run.coordinating for run in slow)
    cpu = statistics.median(run.cpu for run in quick)
    turns, statements = slow[-1].turns, statistics.median(run.statements for run in slow)
    out(f"A diamond of five sub-plans, the model answers after {delay * 1000:.0f} ms (medians of {rounds})\n")
    out(f"  makespan            {makespan:.3f} s")
    out(f"  critical path       {critical:.3f} s")
    out(f"  makespan / critical {makespan / critical:.3f}   (goal: at most 1.10)")
    own = coordinating / 5 * 1000
    out(f"  coordinator         {own:.1f} ms per sub-plan in its own turns, without the model's time")
    out(f"  SQL statements      {statements:.0f} in {turns} turns, {statements / 5:.0f} per sub-plan")
    out("\n  With a model that answers at once:\n")
    out(f"  makespan            {idle:.3f} s, {idle / 5 * 1000:.1f} ms per sub-plan, all included")
    out(f"  CPU                 {cpu * 1000:.0f} ms, {cpu / 5 * 1000:.1f} ms per sub-plan\n")


def _calls(api: Any, settings: Any) -> None:
    from tests.orchestration.script import DIAMOND

    out("Calls to the model\n\n                    single-pass   staged")
    simple, planned = {}, {}
    for mode in ("single-pass", "staged"):
        settings.BUREAU_TRIAGE = mode
        simple[mode] = _mission(api, _simple(0.0)).calls
        planned[mode] = _mission(api, _planned(DIAMOND, 0.0)).calls
    settings.BUREAU_TRIAGE = "single-pass"
    out(f"  a simple request  {simple['single-pass']:11d}   {simple['staged']:6d}")
    out(f"  a planned mission {planned['single-pass']:11d}   {planned['staged']:6d}\n")


def _grain(api: Any, settings: Any, rounds: int, delay: float) -> None:
    """The same ten steps as one sub-plan, and as ten."""
    from tests.orchestration.script import part, step

    settings.BUREAU_PLAN_SIZE = 10
    whole = [part("all", *(step(f"Work on {n}") for n in range(10)))]
    single = [part(f"s{n}", step(f"Work on {n}"), needs=(f"s{n - 1}",) if n else ()) for n in range(10)]
    out("Ten steps, each after the other, given out as one sub-plan or step by step\n")
    out("                messages  tasks  model calls  wall s")
    for name, parts in (("one sub-plan", whole), ("ten of them", single)):
        runs = [_mission(api, _planned(parts, delay / 3)) for _ in range(max(1, rounds // 2))]
        wall = statistics.median(run.seconds for run in runs)
        out(f"  {name:13s} {runs[0].messages:8d}  {runs[0].tasks:5d}  {runs[0].calls:11d}  {wall:6.3f}")
    settings.BUREAU_PLAN_SIZE = 5


def _with_a_worker(api: Model, settings: Any, rounds: int, delay: float) -> None:
    """The same diamond by a worker process, whose missions are handed in from outside."""
    from tasks.models import Task
    from tests.orchestration.script import DIAMOND

    def seconds(wait: float) -> float:
        api.follow(_planned(DIAMOND, wait))
        mission = Task.objects.filter(pk=_send())
        deadline = time.monotonic() + LONGEST_MISSION
        while not (row := mission.get()).is_terminal:
            if time.monotonic() > deadline:
                raise SystemExit("The mission did not end within a minute.")
            time.sleep(LOOK_SECONDS)
        return (row.status_at - row.created_at).total_seconds()

    with _worker_process(settings) as ready_after:
        first = seconds(0.0)
        makespan = statistics.median(seconds(delay) for _ in range(rounds))
    out(f"\nThe diamond by a worker process with {SLOTS} threads: Celery, the broker and the bell in between\n")
    out(f"  makespan            {makespan:.3f} s, {makespan / (6 * delay):.3f} of the critical path")
    out(f"  first mission       {first:.3f} s, {ready_after:.1f} s after the worker's start, its model answers at once")


@contextmanager
def _worker_process(settings: Any) -> Iterator[float]:
    """Gives how long it took to be warm, in seconds."""
    from pathlib import Path

    from bureau import embedded
    from tests.support.servers import start, wait_ready

    folder = Path(settings.BUREAU_DATA)
    env = os.environ | {"ANTHROPIC_BASE_URL": settings.ANTHROPIC_BASE_URL, "BUREAU_LOG_LEVEL": "INFO"}
    valkey = start(embedded.valkey_command(folder, settings.BUREAU_VALKEY_SOCKET), folder, env, "valkey")
    wait_ready(valkey, lambda: not embedded.answers(settings.REDIS_URL), "Valkey")
    started = time.monotonic()
    worker = start([sys.executable, "manage.py", "worker", "--threads", str(SLOTS)], folder, env, "worker")
    try:
        wait_ready(worker, lambda: "Warm after" in worker.output, "worker")
        yield time.monotonic() - started
    finally:
        worker.stop()
        valkey.stop()


def _simple(delay: float) -> list[Any]:
    from tests.orchestration.script import says, triage
    from tests.support.messages_api import Reply

    call = {"tool": "echo", "params": {"text": "hello"}}
    return [
        _late(triage(call=call), delay),
        says("clarify", {"is_clear": True}, delay=delay),
        says("decompose", {"needs_plan": False}, delay=delay),
        Reply(match="You only choose between two ways", json={"decision": "local"}, delay=delay),
        Reply(match="You choose the tool", json={"call": call}, delay=delay),
    ]


def _planned(parts: Any, delay: float) -> list[Any]:
    from tests.orchestration.script import answer, plan, says, triage

    return [
        _late(triage(needs_plan=True), delay),
        says("clarify", {"is_clear": True}, delay=delay),
        says("decompose", {"needs_plan": True}, delay=delay),
        plan(*parts, delay=delay),
        says("step", text="Done.", delay=delay, times=0),
        _late(answer(), delay),
    ]


def _late(reply: Any, delay: float) -> Any:
    reply.delay = delay
    return reply


def _mission(api: Model, script: list[Any]) -> Run:
    from tasks.models import Message, Task

    api.follow(script)
    with _slots() as meter:
        started, cpu = time.perf_counter(), time.process_time()
        task_id = _send()
        meter.wait_for(task_id)
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    mission = Task.objects.get(pk=task_id)
    if mission.state != Task.State.COMPLETED:
        raise SystemExit(f"The mission is {mission.state}: {mission.status_message}")
    below = Task.objects.filter(root=mission)
    return Run(
        seconds,
        cpu,
        api.follow([]),
        Message.objects.filter(task__in=[mission, *below]).count(),
        below.count(),
        meter.turns,
        meter.coordinating,
        meter.statements,
    )


def _send() -> Any:
    from directory.identity import Caller
    from directory.models import Agent
    from tasks.content import Incoming
    from tasks.services import send_message

    agent = Agent.objects.get(slug="assistant")
    return send_message(Caller("user:1", "bench"), agent, Incoming.from_text(GOAL)).task_id


class Meter:
    """What goes on in the slots, added up over all of them."""

    def __init__(self) -> None:
        self.turns = self.statements = 0
        self.coordinating = 0.0
        self._settled: set[Any] = set()
        self._news = threading.Condition()
        self._thread = threading.local()

    def run_turn(self, run_turn: Any, claim: Any, *end: Any) -> None:
        self._thread.asking = 0.0
        started = time.perf_counter()
        run_turn(claim, *end)
        took = time.perf_counter() - started - self._thread.asking
        with self._news:
            self.turns += 1
            self.coordinating += took if claim.parent_id is None else 0.0

    def converse(self, converse: Any, *args: Any) -> Any:
        started = time.perf_counter()
        try:
            return converse(*args)
        finally:
            self._thread.asking += time.perf_counter() - started

    def count(self, execute: Any, *args: Any) -> Any:
        self.statements += 1
        return execute(*args)

    def announce(self, task_ids: Sequence[Any], *, is_settled: bool = False, **_more: Any) -> None:
        """In place of Redis: nobody else listens."""
        if is_settled:
            with self._news:
                self._settled.update(task_ids)
                self._news.notify_all()

    def wait_for(self, task_id: Any) -> None:
        with self._news:
            if not self._news.wait_for(lambda: task_id in self._settled, LONGEST_MISSION):
                raise SystemExit("The mission did not end within a minute.")


@contextmanager
def _slots() -> Iterator[Meter]:
    from django.db import connection

    from agents import budget, runtime
    from tasks import doorbell, wakeups

    over = threading.Event()
    bell = threading.Semaphore(0)
    meter = Meter()
    replaced: list[tuple[Any, str, Any]] = [
        (runtime, "run_turn", partial(meter.run_turn, runtime.run_turn)),
        (budget, "converse", partial(meter.converse, budget.converse)),
        (wakeups, "announce", meter.announce),
        *((doorbell, name, lambda queue: bell.release()) for name in ("ring", "ring_again", "call_for_help")),
        *((doorbell, name, lambda queue: None) for name in ("clear", "hold", "is_held")),
    ]
    were = [(module, name, getattr(module, name)) for module, name, _ in replaced]
    for module, name, instead in replaced:
        setattr(module, name, instead)

    def work() -> None:
        with connection.execute_wrapper(meter.count):
            while not over.is_set():
                if bell.acquire(timeout=0.2):
                    runtime.drain("default")
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(SLOTS)]
    for thread in threads:
        thread.start()
    try:
        yield meter
    finally:
        over.set()
        for thread in threads:
            thread.join()
        for module, name, was in were:
            setattr(module, name, was)


if __name__ == "__main__":
    main()
