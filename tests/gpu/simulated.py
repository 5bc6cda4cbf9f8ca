"""Runs programs on the CPU: the kernel compiled by g++ with ASan and UBSan, and its buffers read back as values."""

from __future__ import annotations

import hashlib
import json
import struct
import subprocess
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import numpy as np

from kbit_spark.codecs.gpu.layout import Node
from kbit_spark.codecs.gpu.program import FAULTS, FIRST_FAULT, UNSURE, program_for
from kbit_spark.codecs.plan import Plan

HERE = Path(__file__).parent
SUPPORT = HERE.parents[1] / "jars/kbit-gpu/src/main/resources/kbit/gpu/support.cu"
TOMBSTONE, OK = 0, 1
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
_DTYPES = {
    "boolean": "?",
    "byte": "i1",
    "short": "<i2",
    "int": "<i4",
    "long": "<i8",
    "float": "<f4",
    "double": "<f8",
    "date": "<i4",
    "timestamp": "<i8",
}


class Simulated:
    """A program, compiled for the CPU."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        """Compile the program of a plan; one whose source was compiled before is taken from `folder`.

        Raises:
            NotOnGpu: the plan has none.
        """
        self._program = program = program_for(plan)
        self._names = [field["name"] for field in plan["fields"]]
        self._folder = folder
        name = hashlib.sha256(program.source.encode()).hexdigest()[:24]
        self._binary = folder / name
        if not self._binary.exists():
            source = folder / f"{name}.cpp"
            source.write_text(program.source)
            compile_cpp(source, _harness(folder), "-o", self._binary)

    def decode(self, payloads: Sequence[bytes | None], rows: int = 1) -> list[dict[str, Any] | None]:
        """Decode payloads in batches of `rows`.

        Returns:
            For each ``{"value": …}`` or ``{"error", "position"}``, as `Decoders.decodeToJson` gives it but without
            reasons; ``{}`` where the kernel leaves the row to the CPU; None for a tombstone.
        """
        layout = self._program.layout
        lines = [f"{rows} {layout.lanes} {int(self._program.warp)} {len(layout.buffers)} {len(layout.spans)}"]
        lines += [f"{b.lane} {b.width} {b.extra}" for b in layout.buffers]
        lines += [f"{s.lane} {s.source} {s.offsets} {s.data}" for s in layout.spans]
        files = [self._folder / f"{self._binary.name}.{part}" for part in ("layout", "payloads", "out")]
        files[0].write_text("\n".join(lines))
        files[1].write_bytes(b"".join(struct.pack("<i", -1 if p is None else len(p)) + (p or b"") for p in payloads))
        ran = subprocess.run([str(self._binary), *map(str, files)], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr[-3000:]
        return list(self._results(files[2].read_bytes()))

    def _results(self, output: bytes) -> Iterator[dict[str, Any] | None]:
        blocks = _blocks(output)
        for status in blocks:
            position = np.frombuffer(next(blocks), "<i4")
            buffers = [next(blocks) for _ in self._program.layout.buffers]
            for node in self._program.layout.columns:
                _check_nulls_are_empty(node, buffers, np.frombuffer(status, "u1") == OK)
            columns = [_Values(node, buffers) for node in self._program.layout.columns]
            for row, code in enumerate(status):
                if code == TOMBSTONE:
                    yield None
                elif code == OK:
                    yield {"value": {name: column[row] for name, column in zip(self._names, columns, strict=True)}}
                elif code == UNSURE:
                    yield {}
                else:
                    yield {"error": FAULTS[code - FIRST_FAULT], "position": int(position[row])}


def _harness(folder: Path) -> Path:
    built = folder / "harness.o"
    if not built.exists():
        compile_cpp("-c", HERE / "harness.cpp", "-o", built)
    return built


def compile_cpp(*arguments: str | Path) -> None:
    """Run the compiler, with sanitizers; sources may include the kernels that no program brings itself."""
    include = f"-I{SUPPORT.parent}"
    subprocess.run(["g++", "-std=c++17", "-O1", "-w", include, *SANITIZERS, *map(str, arguments)], check=True)


def _blocks(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        yield data[at + 8 : at + 8 + size]
        at += 8 + size


def _check_nulls_are_empty(node: Node, buffers: list[bytes], present: np.ndarray) -> None:
    """Check that texts and lists that are null, or in a null, have no items; the JVM takes that for granted."""
    if node.valid is not None:
        present = present & (np.frombuffer(buffers[node.valid], "u1") == 1)
    if node.offsets >= 0 and node.child is not None:
        lengths = np.diff(np.frombuffer(buffers[node.offsets], "<i4"))
        assert not lengths[~present].any(), f"a null of {node.tree} has items"
        if node.item:
            _check_nulls_are_empty(node.item, buffers, np.ones(lengths.sum(), bool))
    for child in node.children:
        _check_nulls_are_empty(child, buffers, present)


class _Values:
    """The elements of a node, as JSON has them."""

    def __init__(self, node: Node, buffers: list[bytes]) -> None:
        self._node = node
        self._buffers = buffers
        self._offsets = np.frombuffer(buffers[node.offsets], "<i4") if node.offsets >= 0 else None
        self._parts = [_Values(child, buffers) for child in node.children]
        self._item = _Values(node.item, buffers) if node.item else None

    def __getitem__(self, index: int) -> Any:
        node = self._node
        if node.valid is not None:
            flag = self._buffers[node.valid][index]
            assert flag in (0, 1), "a flag was not written"
            if not flag:
                return None
        match node.kind:
            case "fixed":
                return self._number(index)
            case "struct":
                values = [part[index] for part in self._parts]
                if node.tree["type"] == "map":
                    return values
                return {field["name"]: value for field, value in zip(node.tree["fields"], values, strict=True)}
        assert self._offsets is not None
        start, end = int(self._offsets[index]), int(self._offsets[index + 1])
        assert 0 <= start <= end
        if node.kind == "bytes":
            data = self._buffers[node.data][start:end]
            return data.decode() if node.tree == "string" else {"$hex": data.hex()}
        assert self._item is not None
        items = [self._item[at] for at in range(start, end)]
        return {_key(key): value for key, value in items} if node.tree["type"] == "map" else items

    def _number(self, index: int) -> Any:
        node = self._node
        data = self._buffers[node.data]
        if isinstance(node.tree, dict):
            width = {"i32": 4, "i64": 8, "Wide": 16}[node.c_type]
            unscaled = int.from_bytes(data[index * width : (index + 1) * width], "little", signed=True)
            return format(Decimal(unscaled).scaleb(-node.tree["scale"], Context(prec=60)), "f")
        value = np.frombuffer(data, _DTYPES[node.tree])[index].item()
        if isinstance(value, float) and (value != value or abs(value) == float("inf")):
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
        if node.tree == "date":
            return _date(value)
        return _timestamp(value) if node.tree == "timestamp" else value


def _key(key: Any) -> str:
    return json.dumps(key) if isinstance(key, bool) else str(key)


def _date(days: int) -> str | int:
    try:
        return (datetime(1970, 1, 1) + timedelta(days=days)).date().isoformat()
    except OverflowError:
        return days


def _timestamp(micros: int) -> str | int:
    try:
        return (datetime(1970, 1, 1) + timedelta(microseconds=micros)).isoformat(timespec="microseconds") + "Z"
    except OverflowError:
        return micros
