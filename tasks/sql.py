"""Statements written by hand, for the few places where each one counts.

On PostgreSQL they are prepared once per connection: planning them anew would cost as much as running them.
(`prepare_threshold` in the database's OPTIONS turns that off, for poolers that cannot keep prepared statements.)
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.core.serializers.json import DjangoJSONEncoder
from django.db import DEFAULT_DB_ALIAS, connections, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone


def this_database() -> BaseDatabaseWrapper:
    """This thread's connection. `django.db.connection` looks it up at every touch; here a statement has dozens."""
    return connections[DEFAULT_DB_ALIAS]


def fetch_all(statement: str, params: Sequence[Any]) -> list[tuple[Any, ...]]:
    """All rows. Values come as the driver gives them; on SQLite, ids are hexadecimal and JSON is text."""
    database = this_database()
    if database.vendor == "postgresql":
        from psycopg import Cursor

        database.ensure_connection()
        # Django's own cursor binds parameters on the client, and then nothing can be prepared.
        with database.wrap_database_errors, Cursor(database.connection) as cursor:
            cursor.execute(statement, params, prepare=True)
            return cursor.fetchall()
    with database.cursor() as cursor:
        cursor.execute(statement, params)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def fetch_one(statement: str, params: Sequence[Any]) -> tuple[Any, ...] | None:
    """The first row, or None."""
    rows = fetch_all(statement, params)
    return rows[0] if rows else None


@dataclass(frozen=True, slots=True)
class Sql:
    """A value computed by the statement itself, in SQL both databases know."""

    text: str
    params: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class After:
    """A moment so many seconds from now, by the database's clock: the clocks of several machines differ.

    With `unless_leased`, the column keeps its value while somebody holds the row.
    """

    seconds: float = 0.0
    unless_leased: bool = False

    def render(self, database: BaseDatabaseWrapper) -> tuple[str, list[Any]]:
        text = "statement_timestamp() + %s::float8 * interval '1 second'"
        param: Any = self.seconds
        if database.vendor != "postgresql":
            text = "%s"
            param = database.ops.adapt_datetimefield_value(timezone.now() + timedelta(seconds=self.seconds))
        return (f"CASE WHEN lease_owner = '' THEN {text} ELSE due_at END" if self.unless_leased else text), [param]


@dataclass(frozen=True, slots=True)
class Insert:
    """A row that is written with another statement. `values` by column; `conflict` is an ON CONFLICT clause."""

    model: type[models.Model]
    values: Mapping[str, Any]
    conflict: str = ""

    def render(self, source: str, database: BaseDatabaseWrapper) -> tuple[str, list[Any]]:
        """The statement, its values selected from `source` (a FROM clause, or nothing), and its parameters."""
        columns = ", ".join(self.values)
        texts: list[str] = []
        params: list[Any] = []
        for name, value in self.values.items():
            text, more = expression(self.model, name, value, database)
            texts.append(text)
            params += more
        table = self.model._meta.db_table
        # SQLite takes ON CONFLICT after a SELECT for a join condition unless a WHERE stands between.
        where = f" WHERE TRUE {self.conflict}" if self.conflict else ""
        return f"INSERT INTO {table} ({columns}) SELECT {', '.join(texts)}{source}{where}", params


def assignments(
    model: type[models.Model], changes: Mapping[str, Any], database: BaseDatabaseWrapper
) -> tuple[str, list[Any]]:
    """The SET clause of an UPDATE, by column, and its parameters."""
    texts: list[str] = []
    params: list[Any] = []
    for name, value in changes.items():
        text, more = expression(model, name, value, database)
        texts.append(f"{name} = {text}")
        params += more
    return ", ".join(texts), params


def expression(
    model: type[models.Model], column: str, value: Any, database: BaseDatabaseWrapper
) -> tuple[str, Sequence[Any]]:
    """A column's value as SQL text and parameters."""
    if isinstance(value, After):
        return value.render(database)
    if isinstance(value, Sql):
        return value.text, [_adapted(param, database) for param in value.params]
    placeholder, adapt = _column(model, column, database)
    return placeholder, (adapt(value, database) if adapt else value,)


def prepare(model: type[models.Model], column: str, value: Any, database: BaseDatabaseWrapper) -> Any:
    """The value as this database wants it for that column."""
    adapt = _column(model, column, database)[1]
    return adapt(value, database) if adapt else value


def dumps(value: Any) -> str:
    """JSON for a column, with dates as ISO 8601."""
    return json.dumps(value, cls=DjangoJSONEncoder)


def loads(value: Any) -> Any:
    """JSON that comes as text (always on SQLite, for `jsonb` on PostgreSQL), or came as a value already."""
    return json.loads(value) if isinstance(value, str | bytes) else value


def _adapted(param: Any, database: BaseDatabaseWrapper) -> Any:
    if isinstance(param, UUID) and not database.features.has_native_uuid_field:
        return param.hex
    return param


Adapt = Callable[[Any, BaseDatabaseWrapper], Any]
_columns: dict[tuple[type[models.Model], str, str], tuple[str, Adapt | None]] = {}


def _column(model: type[models.Model], name: str, database: BaseDatabaseWrapper) -> tuple[str, Adapt | None]:
    """A column's placeholder, and what makes its values fit for the driver, if anything has to.

    On PostgreSQL the placeholder has the type, but without a length: a cast with one would cut text off silently.
    psycopg takes everything but JSON as it is.
    """
    key = (model, name, database.vendor)
    found = _columns.get(key)
    if found is None:
        field = next(field for field in model._meta.concrete_fields if field.column == name)
        if database.vendor == "postgresql":
            kind = (field.db_type(database) or "text").partition("(")[0]
            found = f"%s::{kind}", field.get_db_prep_save if isinstance(field, models.JSONField) else None
        else:
            found = "%s", field.get_db_prep_save
        _columns[key] = found
    return found
