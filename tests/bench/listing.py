"""What ListTasks costs among very many tasks of one caller."""

import time
from collections.abc import Mapping
from typing import Any

import psycopg

from tests.bench.client import Connection
from tests.bench.lifecycle import ask, p50_p99
from tests.bench.processes import ServerFailed, cpu_seconds
from tests.bench.report import Figure
from tests.bench.targets import BureauFleet

PAGE = {"pageSize": 50}


class Listing:
    """An API client whose tasks grow to any number, and the calls that list them."""

    def __init__(self, target: BureauFleet) -> None:
        self._target = target
        self._connection = Connection(target.url, target.as_client("lister"), timeout=120)
        self._rows = 0
        self._model = ""

    async def among(self, rows: int, count: int) -> list[Figure]:
        """Milliseconds of ListTasks when the caller has `rows` tasks: three kinds of page, `count` calls each."""
        if not self._model:
            self._model = (await ask(self._connection, self._target.request("echo")))["task"]["id"]
            self._rows = 1
        self._fill(rows // 2)
        # The end of today's first page is the middle of all when as many newer tasks have come.
        middle = (await self._call(PAGE))["nextPageToken"]
        self._fill(rows)
        pages = {
            "first page": PAGE,
            "a page in the middle": {**PAGE, "pageToken": middle},
            "the failed ones": {**PAGE, "status": "TASK_STATE_FAILED"},
        }
        return [await self._figure(f"ListTasks, {title}", params, count) for title, params in pages.items()]

    def close(self) -> None:
        self._connection.close()

    async def _figure(self, title: str, params: Mapping[str, Any], count: int) -> Figure:
        heard, used = [], cpu_seconds(self._target.web.tree())
        for _ in range(count):
            sent = time.perf_counter()
            page = await self._call(params)
            heard.append((time.perf_counter() - sent) * 1000)
            if len(page["tasks"]) != PAGE["pageSize"]:
                raise ServerFailed(f"{title}: {len(page['tasks'])} tasks on a page of {PAGE['pageSize']}")
        used = (cpu_seconds(self._target.web.tree()) - used) * 1000 / count
        return Figure(title, p50_p99(heard), f"ms p50 / p99 of {count} among {self._rows:,}; web CPU {used:.1f} ms")

    async def _call(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return await ask(self._connection, self._target.call("ListTasks", dict(params)))

    def _fill(self, rows: int) -> None:
        """Add tasks, each newer than the last, until the caller has `rows`."""
        with psycopg.connect(self._target.env["DATABASE_URL"], autocommit=True) as connection:
            values = {"first": self._rows + 1, "last": rows, "most": 1_000_000, "model": self._model}
            for statement in FILL:
                connection.execute(statement.encode(), values)
            connection.execute(b"VACUUM ANALYZE")  # what autovacuum does within minutes
        self._rows = rows
        self._connection.close()  # which the server does not keep open for as long as this took


# The finished echo that was sent over the wire, many times: each in a context of its own, with its message and its
# artifact, one in fifty failed. A million that are sent would take an hour. Columns that are not named are copied,
# so that nothing here has to know them.
BEGIN = """
CREATE TEMPORARY TABLE filling AS
SELECT gen_random_uuid() AS task_id, gen_random_uuid() AS context_id, number,
    now() - (%(most)s - number) * interval '1 second' AS at
FROM generate_series(%(first)s::int, %(last)s) AS number
"""
COPY = """
INSERT INTO {table}
SELECT made.* FROM filling AS f
CROSS JOIN {table} AS model
CROSS JOIN LATERAL jsonb_populate_record(model, jsonb_build_object({changes})) AS made
WHERE model.{key}
"""
FILL = (
    BEGIN,
    COPY.format(
        table="tasks_context",
        key="id = (SELECT context_id FROM tasks_task WHERE id = %(model)s)",
        changes="'id', f.context_id, 'key', f.context_id, 'created_at', f.at",
    ),
    COPY.format(
        table="tasks_task",
        key="id = %(model)s",
        changes="'id', f.task_id, 'context_id', f.context_id, 'created_at', f.at, 'status_at', f.at, "
        "'state', CASE WHEN f.number %% 50 = 0 THEN 'failed' ELSE 'completed' END",
    ),
    COPY.format(
        table="tasks_message",
        key="task_id = %(model)s",
        changes="'id', nextval(pg_get_serial_sequence('tasks_message', 'id')), 'task_id', f.task_id, "
        "'message_id', 'bench-' || f.number, 'created_at', f.at",
    ),
    COPY.format(
        table="tasks_artifact",
        key="task_id = %(model)s",
        changes="'id', gen_random_uuid(), 'task_id', f.task_id, 'context_id', f.context_id, 'created_at', f.at",
    ),
    "DROP TABLE filling",
)
