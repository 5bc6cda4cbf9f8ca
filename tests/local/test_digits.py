from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from kbit_spark.errors import RunError
from kbit_spark.local.digits import digits, idx_digits


def test_originals_come_once_then_altered_copies_under_the_same_id() -> None:
    rows = list(digits(3_600, seed=1))
    first, second = rows[:1_797], rows[1_797:3_594]
    assert {d.id for d in first} == set(range(1_797)) == {d.id for d in second}
    labels = {d.id: d.label for d in first}
    assert all(labels[d.id] == d.label for d in second)
    by_id = {d.id: d.image for d in first}
    changed = [not np.array_equal(by_id[d.id], d.image) for d in second]
    assert np.mean(changed) > 0.99
    assert all(d.image.shape == (28, 28) and d.image.dtype == np.uint8 and d.image.max() > 150 for d in rows)


def test_the_seed_decides() -> None:
    once, again, other = (list(digits(50, seed)) for seed in (3, 3, 4))
    assert [d.id for d in once] == [d.id for d in again] != [d.id for d in other]


def _write_idx(path: Path, array: np.ndarray, opener=open) -> None:  # type: ignore[no-untyped-def, type-arg]
    with opener(path, "wb") as file:
        file.write(struct.pack(f">I{array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes())


def test_mnist_files_gzipped_or_not(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (5, 28, 28), dtype=np.uint8)
    labels = np.array([3, 1, 4, 1, 5], dtype=np.uint8)
    _write_idx(tmp_path / "train-images-idx3-ubyte.gz", images, gzip.open)
    _write_idx(tmp_path / "train-labels-idx1-ubyte", labels)
    rows = {d.id: d for d in idx_digits(tmp_path, None)}
    assert [rows[i].label for i in range(5)] == labels.tolist()
    assert all(np.array_equal(rows[i].image, images[i]) for i in range(5))


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no MNIST file"):
        list(idx_digits(tmp_path, 1))
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"\x00\x00\x08\x03")
    with pytest.raises(RunError, match="train-images-idx3-ubyte"):
        list(idx_digits(tmp_path, 1))
