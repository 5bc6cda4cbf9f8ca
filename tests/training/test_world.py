"""Which device a rank gets."""

from __future__ import annotations

import pytest
import torch

from kbit_spark.errors import MissingRequirement
from kbit_spark.training.world import choose_device, visible_device


@pytest.mark.parametrize(
    ("address", "visible", "expected"),
    [("3", None, "3"), ("3", "", "3"), ("3", "2,3", "3"), ("1", "4, 5", "5"), ("0", "GPU-a,GPU-b", "GPU-a")],
)
def test_the_visible_device(address: str, visible: str | None, expected: str) -> None:
    assert visible_device(address, visible) == expected


def test_the_cpu_is_taken_without_a_gpu() -> None:
    environ: dict[str, str] = {}
    assert choose_device("cpu", "0", 0, 1, one_host=False, environ=environ) == torch.device("cpu")
    assert environ == {}
    assert choose_device("auto", None, 0, 1, one_host=False, environ=environ) == torch.device("cpu")


def test_a_gpu_that_is_not_there_is_an_error() -> None:
    with pytest.raises(MissingRequirement, match="device=cuda, but rank 1 was given no GPU"):
        choose_device("cuda", None, 1, 2, one_host=False, environ={})
