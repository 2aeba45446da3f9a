"""Every setting that Bureau takes from the environment: one table, read once, problems collected.

A wrong value never raises here: it is replaced by the default and noted in `Environment.problems`,
which `bureau.checks` turns into Django system checks, so that each command names all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Generic, TypeVar, cast
from urllib.parse import urlsplit

from directory.addresses import Allowlist

T = TypeVar("T")

BASE_DIR = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Kind(Generic[T]):
    """How a setting is written: a word for the documentation, and a parser that raises ValueError."""

    name: str
    parse: Callable[[str], T]


@dataclass(frozen=True)
class Setting(Generic[T]):
    """One row of the table. `help` is a sentence; `secret` values are never shown or logged."""

    name: str
    kind: Kind[T]
    default: T
    help: str
    secret: bool = False


@dataclass(frozen=True)
class Problem:
    """A setting that could not be used, and what to do about it."""

    setting: str
    message: str
    hint: str


def _flag(text: str) -> bool:
    word = text.lower()
    if word in {"1", "true", "yes", "on"}:
        return True
    if word in {"0", "false", "no", "off"}:
        return False
    raise ValueError("write true or false")


def _maybe_flag(text: str) -> bool | None:
    return _flag(text)


def whole(least: int, most: int | None = None) -> Kind[int]:
    """A whole number within limits."""
    limits = f"{least} or more" if most is None else f"{least} to {most}"

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"write a whole number, {limits}") from None
        if value < least or (most is not None and value > most):
            raise ValueError(f"write a whole number, {limits}")
        return value

    return Kind(f"whole number, {limits}", parse)


def seconds(least: float) -> Kind[float]:
    """A duration in seconds, fractions allowed."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError("write a number of seconds, for example 30") from None
        if not least <= value < float("inf"):
            raise ValueError(f"write a number of seconds, {least:g} or more")
        return value

    return Kind(f"seconds, {least:g} or more", parse)


def number(least: float, most: float | None = None) -> Kind[float]:
    """A number within limits, fractions allowed."""
    limits = f"{least:g} or more" if most is None else f"{least:g} to {most:g}"

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"write a number, {limits}") from None
        if not least <= value < float("inf") or (most is not None and value > most):
            raise ValueError(f"write a number, {limits}")
        return value

    return Kind(f"number, {limits}", parse)


def words_of(*known: str) -> Kind[tuple[str, ...]]:
    """Some of a few words, separated by commas."""

    def parse(text: str) -> tuple[str, ...]:
        words = _words(text)
        for word in words:
            if word not in known:
                raise ValueError(f"{word} is none of: {', '.join(known)}")
        return words

    return Kind(f"some of {', '.join(known)}", parse)


def choice(*words: str) -> Kind[str]:
    """One of a few words."""
    listed = ", ".join(words)

    def parse(text: str) -> str:
        for word in words:
            if text.lower() == word.lower():
                return word
        raise ValueError(f"write one of: {listed}")

    return Kind(f"one of {listed}", parse)


def address(*schemes: str) -> Kind[str]:
    """A URL with one of the given schemes; the empty default means "not set"."""
    listed = ", ".join(f"{scheme}://" for scheme in schemes)

    def parse(text: str) -> str:
        scheme, separator, rest = text.partition("://")
        if not separator or scheme.lower() not in schemes:
            raise ValueError(f"it must start with {listed}")
        try:
            urlsplit(text).port  # noqa: B018 - reading the port is what validates it
        except ValueError:
            raise ValueError("its port is not a number from 0 to 65535") from None
        if not rest:
            raise ValueError(f"something must follow {scheme}://")
        return text

    return Kind(f"URL ({listed})", parse)


def _path(text: str) -> Path:
    return Path(text).expanduser().absolute()


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _outbound(text: str) -> tuple[str, ...]:
    words = _words(text)
    if words == ("none",):
        return ()
    Allowlist.parse(words)
    return words


TEXT: Kind[str] = Kind("text", str)
FLAG = Kind("true or false", _flag)
MAYBE_FLAG = Kind("true or false", _maybe_flag)
FOLDER = Kind("folder", _path)
MAYBE_FILE: Kind[Path | None] = Kind("file", _path)
WORDS: Kind[tuple[str, ...]] = Kind("words, separated by commas", _words)
OUTBOUND: Kind[tuple[str, ...]] = Kind("hosts and networks, separated by commas, or none", _outbound)

DATA = Setting(
    "BUREAU_DATA",
    FOLDER,
    BASE_DIR / "data",
    "The data folder: database, files, generated secrets, queue. Default: `data` beside manage.py.",
)
HOST = Setting("BUREAU_HOST", TEXT, "127.0.0.1", "The address that the web server listens on.")
PORT = Setting("BUREAU_PORT", whole(1, 65535), 8000, "The port that the web server listens on.")
WORKERS = Setting("BUREAU_WORKERS", whole(0, 64), 1, "How many worker processes `manage.py up` starts.")
WORKER_THREADS = Setting(
    "BUREAU_WORKER_THREADS", whole(1, 256), 8, "How many tasks one worker process runs at the same time."
)
PRODUCTION = Setting(
    "BUREAU_PRODUCTION",
    FLAG,
    False,
    "Serve strangers: secrets must be given, cookies are HTTPS-only, nobody is anonymous.",
)
SECRET_KEY = Setting(
    "BUREAU_SECRET_KEY",
    TEXT,
    "",
    "Signs sessions and encrypts stored credentials. Default: generated into the data folder.",
    secret=True,
)
SECRET_KEY_FALLBACKS: Setting[tuple[str, ...]] = Setting(
    "BUREAU_SECRET_KEY_FALLBACKS",
    WORDS,
    (),
    "Earlier secret keys, which are still good for reading while a new one takes over.",
    secret=True,
)
ALLOWED_HOSTS: Setting[tuple[str, ...]] = Setting(
    "BUREAU_ALLOWED_HOSTS",
    WORDS,
    (),
    "The host names that requests may ask for. Default: this machine's loopback names and BUREAU_HOST.",
)
PUBLIC_URL = Setting(
    "BUREAU_PUBLIC_URL",
    address("http", "https"),
    "",
    "The address that others reach this server by; agent cards carry it. Default: from host and port.",
)
PROJECT_ROOT = Setting(
    "BUREAU_PROJECT_ROOT",
    FOLDER,
    BASE_DIR,
    "The only folder that the file agents may see. Default: the folder of manage.py.",
)
DATABASE_URL = Setting(
    "DATABASE_URL",
    address("postgres", "postgresql", "sqlite"),
    "",
    "The database. Default: SQLite in the data folder.",
    secret=True,
)
REDIS_URL = Setting(
    "REDIS_URL",
    address("redis", "rediss", "unix"),
    "",
    "Redis or Valkey, for the queue and wake-ups. Default: an embedded Valkey on a private socket.",
    secret=True,
)
ANTHROPIC_API_KEY = Setting(
    "ANTHROPIC_API_KEY", TEXT, "", "The key for Claude. Without it the built-in rules decide.", secret=True
)
ANTHROPIC_BASE_URL = Setting(
    "ANTHROPIC_BASE_URL",
    address("http", "https"),
    "",
    "A server that speaks the Messages API, instead of Anthropic's own.",
)
MODEL_SMALL = Setting("BUREAU_MODEL_SMALL", TEXT, "claude-haiku-5-5", "The model that makes decisions.")
MODEL_LARGE = Setting("BUREAU_MODEL_LARGE", TEXT, "claude-sonnet-5-5", "The model that writes answers.")
MODEL_TIMEOUT = Setting("BUREAU_MODEL_TIMEOUT", seconds(1), 60.0, "How long one model call may take.")
ALLOW_ANONYMOUS = Setting(
    "BUREAU_ALLOW_ANONYMOUS",
    MAYBE_FLAG,
    None,
    "Whether agents may call without a key. Default: only with the embedded parts on a loopback address; "
    "never in production.",
)
JWT_ISSUER = Setting(
    "BUREAU_JWT_ISSUER",
    address("http", "https"),
    "",
    "Whose tokens (JWT) are accepted beside API keys; their claim `iss`. Default: nobody's.",
)
JWT_AUDIENCE = Setting(
    "BUREAU_JWT_AUDIENCE", TEXT, "", "What the claim `aud` of a token must name; needed with BUREAU_JWT_ISSUER."
)
JWT_JWKS_URL = Setting(
    "BUREAU_JWT_JWKS_URL",
    address("http", "https"),
    "",
    "Where the issuer's keys are. Default: `/.well-known/jwks.json` below the issuer.",
)
JWT_SCOPE_PREFIX = Setting(
    "BUREAU_JWT_SCOPE_PREFIX", TEXT, "", "What stands before send, read and cancel in the claim `scope` of a token."
)
JWT_AGENTS_CLAIM = Setting(
    "BUREAU_JWT_AGENTS_CLAIM",
    TEXT,
    "",
    "The claim of a token that names the agents it is good for: a list or words, `*` for all, nothing for none. "
    "Default: every token is good for all.",
)
JWT_SKEW_SECONDS = Setting("BUREAU_JWT_SKEW_SECONDS", seconds(0), 30.0, "How far the issuer's clock may be from ours.")
CARD_KEY_FILE = Setting(
    "BUREAU_CARD_KEY_FILE",
    MAYBE_FILE,
    None,
    "A private key (PEM: EC, RSA or Ed25519) that agent cards are signed with. Default: they are not signed.",
)
RATE_PER_MINUTE = Setting(
    "BUREAU_RATE_PER_MINUTE",
    whole(0),
    0,
    "How many protocol requests one caller may make in a minute; 0 for any number.",
)
OUTBOUND_ALLOW: Setting[tuple[str, ...]] = Setting(
    "BUREAU_OUTBOUND_ALLOW",
    OUTBOUND,
    (),
    "Hosts and networks that remote agents and callbacks may be at although they are not public: "
    "`agents.internal`, `*.internal`, `10.0.0.0/8`. Default: loopback, where anonymous callers are allowed by "
    "default; else none.",
)
CARD_REFRESH_SECONDS = Setting(
    "BUREAU_CARD_REFRESH_SECONDS",
    seconds(1),
    600.0,
    "How often the cards of remote agents are read again.",
)
PROBE_SECONDS = Setting(
    "BUREAU_PROBE_SECONDS", seconds(1), 60.0, "How often remote agents are asked for a sign of life."
)
REMOTE_DEADLINE_SECONDS = Setting(
    "BUREAU_REMOTE_DEADLINE_SECONDS",
    seconds(1),
    3600.0,
    "How long a remote agent may work on a task without a sign of progress, where its options say nothing.",
)
REMOTE_STREAMS = Setting(
    "BUREAU_REMOTE_STREAMS",
    whole(0, 10_000),
    200,
    "How many streams of remote agents one worker process keeps open; whom there is no stream for, is asked.",
)
KEEP_DAYS = Setting(
    "BUREAU_KEEP_DAYS",
    whole(1, 3650),
    30,
    "How many days records are kept that nobody reads for ever: push attempts, counts of delegations, decided cards.",
)
LEASE_SECONDS = Setting(
    "BUREAU_LEASE_SECONDS",
    seconds(0.5),
    30.0,
    "How long a claimed task belongs to its worker without a sign of life.",
)
MAX_ATTEMPTS = Setting("BUREAU_MAX_ATTEMPTS", whole(1, 100), 3, "How many workers may take up a task before it fails.")
SWEEP_SECONDS = Setting(
    "BUREAU_SWEEP_SECONDS",
    seconds(0.2),
    5.0,
    "How often the scheduler looks for tasks whose lease ran out or whose time has come.",
)
LOG_FORMAT = Setting(
    "BUREAU_LOG_FORMAT",
    choice("auto", "text", "json"),
    "auto",
    "How log lines look; `auto` is text in a terminal and JSON elsewhere in production.",
)
LOG_LEVEL = Setting(
    "BUREAU_LOG_LEVEL",
    choice("DEBUG", "INFO", "WARNING", "ERROR"),
    "INFO",
    "The least important log lines to show.",
)
MAX_BODY_BYTES = Setting(
    "BUREAU_MAX_BODY_BYTES",
    whole(1024),
    10 * 1024 * 1024,
    "The largest request body that is read; a form of the pages may have a MiB beside its files.",
)
PAGE_BYTES = Setting(
    "BUREAU_PAGE_BYTES",
    whole(1024),
    4 * 1024 * 1024,
    "A list of tasks gives no more on one page than hold this many bytes together, but always one.",
)
TASK_BYTES = Setting(
    "BUREAU_TASK_BYTES",
    whole(1024),
    32 * 1024 * 1024,
    "How many bytes the messages of one task may hold together; further ones are refused. Also what is taken over of "
    "one remote task; one that sends more fails.",
)
FILE_LIMIT_BYTES = Setting(
    "BUREAU_FILE_LIMIT_BYTES", whole(1), 1024 * 1024, "The largest file that the file reader opens."
)
INLINE_BYTES = Setting(
    "BUREAU_INLINE_BYTES",
    whole(0),
    256 * 1024,
    "The largest file that is sent inside a message; larger ones are sent as an address.",
)

OUTPUT_ROOT = Setting(
    "BUREAU_OUTPUT_ROOT",
    FOLDER,
    BASE_DIR / "output",
    "The folder that agents write files into; it is made when it is needed. Default: `output` in BUREAU_PROJECT_ROOT.",
)
TRIAGE = Setting(
    "BUREAU_TRIAGE",
    choice("single-pass", "staged"),
    "single-pass",
    "Whether one model call decides what happens to a request, or one for each decision point.",
)
POINTS_OFF: Setting[tuple[str, ...]] = Setting(
    "BUREAU_POINTS_OFF",
    words_of(
        "clarify",
        "decompose",
        "route",
        "tool",
        "plan",
        "allocate",
        "follow-up",
        "fulfil",
        "recover",
        "synthesise",
        "confirm",
    ),
    (),
    "Decision points at which no model is asked: the built-in rules decide there, and nothing is written at fulfil.",
)
PLAN_SIZE = Setting("BUREAU_PLAN_SIZE", whole(1, 20), 5, "How many sub-plans a plan may have.")
DELEGATE_STEPS = Setting(
    "BUREAU_DELEGATE_STEPS",
    whole(1),
    2,
    "A sub-plan of fewer steps, none of which needs a model, is done by the coordinator and not delegated.",
)
SUB_PLAN_ATTEMPTS = Setting(
    "BUREAU_SUB_PLAN_ATTEMPTS", whole(1, 20), 3, "How often a sub-plan is tried in all before it is given up."
)
CONFIDENCE = Setting(
    "BUREAU_CONFIDENCE", number(0, 1), 0.4, "Below this confidence a person is asked before a mission is completed."
)
CONFIRM = Setting(
    "BUREAU_CONFIRM",
    choice("policy", "model"),
    "policy",
    "Who says whether a person has to agree to an act: the policy alone, or also the model, for what it leaves open.",
)
CONFIRM_SHARE = Setting(
    "BUREAU_CONFIRM_SHARE",
    number(0, 1),
    0.5,
    "What is estimated to take more than this share of what is left of its mission's budget is asked about first; "
    "0: cost is never asked about.",
)
BUDGET_CALLS = Setting("BUREAU_BUDGET_CALLS", whole(1), 100, "How often one mission may call the model.")
BUDGET_TOKENS = Setting("BUREAU_BUDGET_TOKENS", whole(1000), 2_000_000, "How many tokens one mission may take.")
BUDGET_USD = Setting("BUREAU_BUDGET_USD", number(0), 5.0, "How many US dollars one mission may cost.")
AGENTS: Setting[tuple[str, ...]] = Setting(
    "BUREAU_AGENTS", WORDS, (), "Modules with agents of your own, which workers import; see docs/agents.md."
)

TABLE: tuple[Setting[Any], ...] = tuple(value for value in globals().values() if isinstance(value, Setting))


class Environment:
    """The values of the table in one environment.

    `environment[PORT]` is typed by its row. `problems` holds what could not be used, `unknown` the names
    that look like ours and are not; `given` tells a value that was set from a default.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.problems: list[Problem] = []
        self._values: dict[str, object] = {}
        for setting in TABLE:
            text = variables.get(setting.name, "").strip()
            if text:
                self._read(setting, text)
        self.unknown = list(_unknown(variables))

    def _read(self, setting: Setting[Any], text: str) -> None:
        try:
            self._values[setting.name] = setting.kind.parse(text)
        except ValueError as error:
            shown = "its value" if setting.secret else repr(text)
            self.reject(setting, f"{shown} cannot be used: {error}.")

    def reject(self, setting: Setting[Any], reason: str) -> None:
        """Note that this setting cannot be used, and fall back to its default."""
        self._values.pop(setting.name, None)
        hint = f"{setting.help} Correct it, or unset it to use the default."
        self.problems.append(Problem(setting.name, f"{setting.name}: {reason}", hint))

    def __getitem__(self, setting: Setting[T]) -> T:
        return cast(T, self._values.get(setting.name, setting.default))

    def given(self, setting: Setting[Any]) -> bool:
        """Whether the environment holds a usable value for this setting."""
        return setting.name in self._values

    def is_broken(self, setting: Setting[Any]) -> bool:
        """Whether this setting is among the problems already."""
        return any(problem.setting == setting.name for problem in self.problems)

    def secrets(self) -> list[str]:
        """The secret values that were given, and the passwords inside addresses: never to be printed."""
        given = [self._values[setting.name] for setting in TABLE if setting.secret and self.given(setting)]
        values = [str(word) for value in given for word in (value if isinstance(value, tuple) else (value,))]
        passwords = [urlsplit(value).password or "" for value in values if "://" in value]
        return [*values, *passwords]


def _unknown(variables: Mapping[str, str]) -> Iterator[Problem]:
    names = [setting.name for setting in TABLE]
    for name in sorted(variables):
        if name.startswith("BUREAU_") and not name.startswith("BUREAU_TEST_") and name not in names:
            close = get_close_matches(name, names, n=1)
            hint = f"Did you mean {close[0]}?" if close else "docs/settings.md lists the settings; unset this one."
            yield Problem(name, f"{name} is not a setting of Bureau.", hint)
