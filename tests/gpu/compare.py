"""Holds kernels against the CPU decoder: what must be true of every payload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kbit_spark.cli.decode.jvm import Decode
from kbit_spark.codecs.gpu.layout import NotOnGpu
from kbit_spark.codecs.plan import Plan
from tests.gpu.simulated import Simulated


class BothEngines:
    """Decodes on the CPU and with the kernel, and asserts that the kernel never says anything else.

    `counts`: rows that the kernel called ok, named a fault of, or left to the CPU; `reasons`: plans without a kernel.
    """

    def __init__(self, decode: Decode, folder: Path) -> None:
        self._decode = decode
        self._folder = folder
        self.counts: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()

    def __call__(self, plan: Plan, payloads: Sequence[bytes]) -> list[dict[str, Any]]:
        """Return what the CPU decoder makes of the payloads."""
        expected = self._decode(plan, payloads)
        if plan.get("row", {}).get("width", 0) > len(plan["fields"]):
            return expected  # how the vectors write a schema that can give no row
        try:
            kernel = self.kernel(plan)
        except NotOnGpu as reason:
            self.reasons[str(reason)] += 1
            return expected
        batches = [1] if len(payloads) == 1 else [1, 7]
        for rows in batches:
            for payload, cpu, gpu in zip(payloads, expected, kernel.decode(payloads, rows), strict=True):
                self._check(payload, cpu, gpu)
        return expected

    def kernel(self, plan: Plan) -> Simulated:
        """Return the kernel of a plan, compiled for the CPU.

        Raises:
            NotOnGpu: there is none.
        """
        return Simulated(plan, self._folder)

    def _check(self, payload: bytes, cpu: dict[str, Any], gpu: dict[str, Any] | None) -> None:
        assert gpu is not None, payload
        if not gpu:
            self.counts["unsure"] += 1
        elif "value" in gpu:
            assert _same(gpu["value"], cpu.get("value")), (payload.hex(), cpu, gpu)
            self.counts["ok"] += 1
        else:
            found = {key: cpu.get(key) for key in ("error", "position")}
            assert gpu == found, (payload.hex(), cpu, gpu)
            self.counts["fault"] += 1


def _same(gpu: Any, cpu: Any) -> bool:
    if isinstance(gpu, dict) and isinstance(cpu, dict):
        return gpu.keys() == cpu.keys() and all(_same(gpu[key], cpu[key]) for key in gpu)
    if isinstance(gpu, list) and isinstance(cpu, list):
        return len(gpu) == len(cpu) and all(map(_same, gpu, cpu))
    if isinstance(gpu, int) and isinstance(cpu, str):
        return cpu[0] in "+-"  # a day or instant of a year that Python does not have
    return bool(gpu == cpu and isinstance(gpu, bool) == isinstance(cpu, bool))
