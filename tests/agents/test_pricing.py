"""What calls cost."""

from decimal import Decimal

import pytest

from agents.pricing import PRICES, Usage, cost_of, takes_effort


@pytest.mark.parametrize(
    ("model", "usage", "dollars"),
    [
        ("claude-sonnet-5-5", Usage(1_000_000, 1_000_000), "12.000000"),
        ("claude-sonnet-5-5-20260928", Usage(0, 0, 1_000_000, 1_000_000), "2.600000"),
        ("claude-haiku-5-5", Usage(100_000, 0), "0.010000"),
        ("claude-haiku-5-5", Usage(100_002, 0), "0.050001"),
        ("claude-haiku-5-5", Usage(1, 10, 100_000, 0), "0.005026"),
        ("claude-opus-4-8", Usage(1_000_000, 0), "5.000000"),
    ],
)
def test_the_cost_is_that_of_the_family(model, usage, dollars):
    assert cost_of(model, usage) == Decimal(dollars)


@pytest.mark.parametrize("model", ["qwen3-coder", "claude-haiku-5-50", "claude", ""])
def test_an_unknown_model_has_no_price(model):
    assert cost_of(model, Usage(1000, 1000)) is None


def test_usage_adds_up():
    assert Usage(1, 2, 3, 4) + Usage(10, 20, 30, 40) == Usage(11, 22, 33, 44)


def test_the_default_models_are_priced(settings):
    for model in (settings.BUREAU_MODEL_SMALL, settings.BUREAU_MODEL_LARGE):
        assert model in PRICES
        assert takes_effort(model)
    assert not takes_effort("llama-4")
