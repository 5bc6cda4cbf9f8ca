"""The learning rate over a run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbit_spark.config.train import OptimizerConfig
from kbit_spark.training.optimizer import rate_factor


@given(st.integers(0, 50), st.integers(1, 200), st.sampled_from(["constant", "cosine"]))
def test_the_rate_grows_then_never_grows_again(warmup: int, total: int, decay: str) -> None:
    config = OptimizerConfig.model_validate({"warmup_steps": warmup, "decay": decay})
    factors = [rate_factor(step, config, total) for step in range(total)]
    rising, falling = factors[:warmup], factors[warmup:]
    assert rising == sorted(rising)
    assert falling == sorted(falling, reverse=True)
    assert all(0 <= factor <= 1 for factor in factors)
    assert all(factor > 0 for factor in rising)


def test_cosine_ends_at_zero() -> None:
    config = OptimizerConfig(warmup_steps=2, decay="cosine")
    assert rate_factor(2, config, 10) == 1.0
    assert rate_factor(9, config, 10) == pytest.approx(0.0)
