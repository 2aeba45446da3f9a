"""One conversation with a model over the Messages API: streamed, bounded in time, retried by class of error.

The SDK's own retries are off: they sleep where a canceled turn could not wake them, wait as long as a
server says, and do not cover an error in the middle of a stream. The call itself runs in a thread of its
own, because a read from a silent server cannot be interrupted; the turn's thread waits for news, the
deadline, or the end of the turn, whichever comes first.
"""

import logging
import queue
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.conf import settings

from agents.exceptions import ModelError
from agents.pricing import Usage
from agents.prompts import Prompt, hide_secrets
from agents.turn import Turn

if TYPE_CHECKING:
    import anthropic

logger = logging.getLogger(__name__)

THREAD = "bureau-model"
MAX_CALLS = 4
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 8.0
# A streamed answer may take this many times BUREAU_MODEL_TIMEOUT in all, as long as it keeps coming.
STREAM_FACTOR = 10
CONNECT_SECONDS = 10.0
# The SDK lets go of a connection after five idle seconds, and a mission often thinks longer between two calls.
KEPT_SECONDS = 60.0
LOOK_UP_SECONDS = 0.1
PUBLIC_URL = "https://api.anthropic.com"
# Servers at ANTHROPIC_BASE_URL often want no key, but the client insists on sending one.
NO_KEY = "none"
RETRIED_TYPES = {"overloaded_error", "api_error", "rate_limit_error", "timeout_error"}

Write = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked of the model. With a `schema` the answer is JSON of it; `sink` is called at the start of
    every attempt and returns where its text goes. `may_retry` is asked before every attempt but the first, with the
    error that holds what all attempts so far took."""

    model: str
    prompt: Prompt
    max_tokens: int
    schema: dict[str, Any] | None = None
    effort: str = ""
    sink: Callable[[], Write] | None = None
    may_retry: Callable[[ModelError], bool] | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. `stop_reason` is the API's; `usage` adds up all `calls`."""

    text: str
    stop_reason: str
    model: str
    usage: Usage
    calls: int = 1


def client() -> "anthropic.Anthropic":
    """One client per process and configuration: it is safe for threads and keeps connections open."""
    return _client(settings.ANTHROPIC_API_KEY, settings.ANTHROPIC_BASE_URL, settings.BUREAU_MODEL_TIMEOUT)


@lru_cache(maxsize=4)
def _client(key: str, url: str, timeout: float) -> "anthropic.Anthropic":
    import anthropic

    usual = anthropic.DEFAULT_CONNECTION_LIMITS
    limits = type(usual)(
        max_connections=usual.max_connections,
        max_keepalive_connections=usual.max_keepalive_connections,
        keepalive_expiry=KEPT_SECONDS,
    )
    http = anthropic.DefaultHttpxClient(limits=limits)
    found = anthropic.Anthropic(
        api_key=key or NO_KEY,
        base_url=url or PUBLIC_URL,
        max_retries=0,
        timeout=anthropic.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS)),
        http_client=http,
    )
    # A client that the SDK makes for itself closes its connections with it; ours would leave them open.
    weakref.finalize(found, http.close)
    return found


def converse(turn: Turn, ask: Ask) -> Reply:
    """Ask, trying again where that can help. Raises ModelError, or Stopped when the turn ends meanwhile.

    Until the first text of a stream, or the whole of an answer without one, everything together may take
    BUREAU_MODEL_TIMEOUT, retries included. After that no silence may be longer than it.
    """
    patience = settings.BUREAU_MODEL_TIMEOUT
    deadline = time.monotonic() + patience
    spent = Usage()
    for number in range(1, MAX_CALLS + 1):
        attempt = _Attempt(turn, ask, deadline, patience)
        try:
            reply = attempt.run()
            return replace(reply, usage=spent + reply.usage, calls=number)
        except ModelError as error:
            spent += error.usage
            error.usage, error.calls, error.model = spent, number, ask.model
            if attempt.has_text:
                deadline = time.monotonic() + patience
            pause = max(_backoff(number), error.retry_after)
            if error.is_final or number == MAX_CALLS or time.monotonic() + pause >= deadline:
                raise
            if ask.may_retry and not ask.may_retry(error):
                raise
            logger.info("Model call %d failed, trying again: %s", number, error, extra={"action": "model.retry"})
            turn.pause(pause)
    raise AssertionError("unreachable")


def _backoff(number: int) -> float:
    """Seconds to wait after that many calls: growing, capped, and never the same for two workers."""
    longest: float = min(FIRST_PAUSE * 2 ** (number - 1), LONGEST_PAUSE)
    return longest * random.uniform(0.75, 1.25)  # noqa: S311 - not a secret


class _Attempt:
    """One call: a thread reads the stream, this one takes what it reads."""

    def __init__(self, turn: Turn, ask: Ask, deadline: float, patience: float) -> None:
        self._turn = turn
        self._ask = ask
        self._deadline = deadline
        self._patience = patience
        self._news: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._given_up = threading.Event()
        self._latest: Any = None
        self.has_text = False

    def run(self) -> Reply:
        write = self._ask.sink() if self._ask.sink else None
        threading.Thread(target=self._read, name=THREAD, daemon=True).start()
        try:
            for event in self._take():
                if write and event.type == "text":
                    self.has_text = True
                    write(event.text)
            return self._reply()
        finally:
            self._given_up.set()

    def _take(self) -> Iterator[Any]:
        """Events as they come. Raises ModelError when they stop coming, Stopped when the turn is over."""
        longest = time.monotonic() + self._patience * STREAM_FACTOR
        while True:
            self._turn.check()
            now = time.monotonic()
            if now >= min(self._deadline, longest):
                raise ModelError("timeout", f"The model did not answer within {self._patience:g} seconds.", self._usage)
            try:
                item = self._news.get(timeout=min(LOOK_UP_SECONDS, self._deadline - now))
            except queue.Empty:
                continue
            if item is None:
                return
            if isinstance(item, Exception):
                raise self._as_model_error(item) from item
            if self._ask.sink:
                self._deadline = time.monotonic() + self._patience
            yield item

    def _read(self) -> None:
        """In the reading thread: no database, and nothing raised."""
        try:
            server = client()
            if self._given_up.is_set():
                return  # the client was long in coming
            with server.messages.stream(**self._parameters()) as stream:
                for event in stream:
                    if self._given_up.is_set():
                        return
                    if event.type == "message_start":
                        # The same object grows with every event that follows.
                        self._latest = stream.current_message_snapshot
                    if self._ask.sink:
                        self._news.put(event)
            self._news.put(None)
        except Exception as error:
            # Sorted out, by class, where the turn is.
            self._news.put(error)

    def _parameters(self) -> dict[str, Any]:
        prompt = self._ask.prompt
        config: dict[str, Any] = {}
        if self._ask.schema:
            config["format"] = {"type": "json_schema", "schema": self._ask.schema}
        if self._ask.effort:
            config["effort"] = self._ask.effort
        # What comes before the mark is the same for every request of this kind, so servers may keep it.
        stable = {"type": "text", "text": hide_secrets(prompt.stable), "cache_control": {"type": "ephemeral"}}
        parameters: dict[str, Any] = {
            "model": self._ask.model,
            "max_tokens": self._ask.max_tokens,
            "system": [stable],
            "messages": [{"role": "user", "content": hide_secrets(prompt.request)}],
        }
        return parameters | {"output_config": config} if config else parameters

    @property
    def _usage(self) -> Usage:
        # Servers that only resemble Anthropic's may leave counts out.
        usage = getattr(self._latest, "usage", None)
        names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        return Usage(*(getattr(usage, name, None) or 0 for name in names))

    def _reply(self) -> Reply:
        message = self._latest
        if message is None:
            raise ModelError("unreadable", "What answered at that address does not speak the Messages API.")
        if not message.stop_reason:
            raise ModelError("unreachable", "The model server broke off in the middle of its answer.", self._usage)
        text = "".join(block.text for block in message.content if block.type == "text")
        if message.stop_reason == "refusal":
            details = message.stop_details
            why = (details.explanation or details.category or "") if details else ""
            raise ModelError("declined", f"The model declined this request{f': {why}' if why else ''}.", self._usage)
        return Reply(text, message.stop_reason, message.model or self._ask.model, self._usage)

    def _as_model_error(self, error: Exception) -> ModelError:
        found = sort_out(error)
        found.usage = self._usage
        return found


def sort_out(error: Exception) -> ModelError:
    """What an error of the SDK means to us: its class, in words for people, and whether trying again can help."""
    import anthropic

    if isinstance(error, anthropic.APITimeoutError):
        return ModelError("timeout", "The model server did not answer in time.")
    if isinstance(error, anthropic.APIStatusError):
        return _from_status(error)
    if isinstance(error, anthropic.APIConnectionError) or type(error).__module__.startswith(("httpx", "httpcore")):
        return ModelError("unreachable", "The model server cannot be reached, or broke the connection.")
    logger.warning("The model's answer could not be read", exc_info=error, extra={"action": "model.unreadable"})
    return ModelError("unreadable", "The model server's answer could not be read.", is_final=True)


def _from_status(error: "anthropic.APIStatusError") -> ModelError:
    status, headers = error.status_code, error.response.headers
    wait = _seconds(headers.get("retry-after"))
    detail = hide_secrets(error.api_message or "")[:300]
    told = headers.get("x-should-retry")
    if status in (401, 403):
        text = f"The model server refused the key (HTTP {status}). Check ANTHROPIC_API_KEY."
        return ModelError("auth", text, is_final=True)
    if status == 429 or error.type == "rate_limit_error":
        kind, text = "rate_limited", "The model server is receiving too many requests from this key (HTTP 429)."
    elif status == 529 or error.type == "overloaded_error":
        kind, text = "overloaded", "The model server is overloaded."
    elif status in (408, 409) or status >= 500 or (status < 400 and error.type in RETRIED_TYPES):
        kind, text = "server", f"The model server failed (HTTP {status})."
    else:
        text = f"The model server refused the request (HTTP {status}){f': {detail}' if detail else '.'}"
        return ModelError("bad_request", text, is_final=True)
    return ModelError(kind, text, is_final=told == "false", retry_after=wait)


def _seconds(header: str | None) -> float:
    """`retry-after`: seconds, or a date. 0 when there is none or it is in the past."""
    if not header:
        return 0.0
    try:
        return max(float(header), 0.0)
    except ValueError:
        pass
    try:
        return max(parsedate_to_datetime(header).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError):
        return 0.0
