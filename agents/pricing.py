"""What model calls cost, by model family, in US dollars per million tokens.

Anthropic's published list as of 2026-10-31. A model that is not listed has no known price: its cost
stays empty rather than wrong.
"""

from dataclasses import dataclass
from decimal import Decimal

AS_OF = "2026-10-31"
MILLION = Decimal(1_000_000)
MICRO_DOLLAR = Decimal("0.000001")


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or more calls. `input` counts what was neither read from nor written to the cache."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
        )

    def __sub__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input - other.input,
            self.output - other.output,
            self.cache_read - other.cache_read,
            self.cache_write - other.cache_write,
        )


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens. Above `long_after` prompt tokens every rate is `long_factor` times as high."""

    input: str
    output: str
    cache_read: str
    cache_write: str
    long_after: int = 0
    long_factor: int = 1


# The longest prefix of the model's name decides.
PRICES = {
    "claude-fable-5-1": Price("10", "50", "0.25", "12.50"),
    "claude-fable-5": Price("10", "50", "1", "12.50"),
    "claude-opus-5-5": Price("4", "20", "0.20", "5"),
    "claude-opus-5": Price("5", "25", "0.50", "6.25"),
    "claude-opus-4": Price("5", "25", "0.50", "6.25"),
    "claude-sonnet-5-5": Price("2", "10", "0.10", "2.50"),
    "claude-sonnet-5": Price("2", "10", "0.20", "2.50"),
    "claude-sonnet-4": Price("3", "15", "0.30", "3.75"),
    "claude-haiku-5-5": Price("0.10", "0.50", "0.01", "0.125", long_after=100_000, long_factor=5),
    "claude-haiku-4-5": Price("1", "5", "0.10", "1.25"),
}

# These models think before they answer and take `output_config.effort`; for a short decision little is enough.
TAKES_EFFORT = ("claude-haiku-5", "claude-sonnet-5", "claude-opus-5", "claude-fable-5")


def cost_of(model: str, usage: Usage) -> Decimal | None:
    """Dollars for one call, or None when the price of this model is not known here."""
    known = [prefix for prefix in PRICES if model == prefix or model.startswith(f"{prefix}-")]
    if not known:
        return None
    price = PRICES[max(known, key=len)]
    prompt = usage.input + usage.cache_read + usage.cache_write
    factor = price.long_factor if price.long_after and prompt > price.long_after else 1
    dollars = (
        Decimal(price.input) * usage.input
        + Decimal(price.output) * usage.output
        + Decimal(price.cache_read) * usage.cache_read
        + Decimal(price.cache_write) * usage.cache_write
    )
    return (dollars * factor / MILLION).quantize(MICRO_DOLLAR)


def takes_effort(model: str) -> bool:
    """Whether this model may be told how much effort to spend; others refuse the field."""
    return model.startswith(TAKES_EFFORT)
