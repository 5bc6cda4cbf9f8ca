"""The kernels that the JVM has beside a program's own: on the CPU under sanitizers, and compiled for a GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.gpu.nvrtc import compile_cubin
from tests.gpu.simulated import HERE, SUPPORT, compile_cpp

CASES = 150


@pytest.fixture(scope="session")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("support")
    compile_cpp(HERE / "support.cpp", "-o", folder / "support")
    return folder / "support"


@pytest.mark.parametrize("seed", range(4))
def test_masks_and_copies_are_those_of_plain_loops(seed: int, checker: Path) -> None:
    ran = subprocess.run([str(checker), str(seed), str(CASES)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]


def test_they_compile_for_a_gpu() -> None:
    assert compile_cubin(SUPPORT.read_text(), "sm_90").startswith(b"\x7fELF")
