"""Real handwritten digits: scikit-learn's 1,797, enlarged to 28 x 28, or MNIST's own files where the user has them.

More rows than originals come from seeded shifts, rotations and zooms. Every row keeps the id of its original, which
becomes the record's key, so that copies of one digit never stand on both sides of the train / test split.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from sklearn.datasets import load_digits

from kbit_spark.errors import RunError

SIZE = 28
MAX_SHIFT_PIXELS = 2.0
MAX_ROTATION_DEGREES = 12.0
MAX_ZOOM = 0.1

Image = NDArray[np.uint8]


@dataclass(frozen=True)
class Digit:
    """One handwritten digit: `image` of shape (28, 28), uint8, 0 background to 255 ink; `id` of the original."""

    id: int
    image: Image
    label: int


def digits(rows: int, seed: int = 0) -> Iterator[Digit]:
    """Yield `rows` digits in a seeded order: first each original once, then altered copies of them."""
    originals = load_digits()
    images = [_enlarge(image) for image in originals.images]
    yield from _repeat(images, originals.target, rows, seed)


def idx_digits(folder: Path, rows: int | None, seed: int = 0) -> Iterator[Digit]:
    """Yield digits from MNIST's files (``train-images-idx3-ubyte``, gzipped or not) in `folder`.

    Args:
        folder: holds images and labels.
        rows: how many; none: each once.
        seed: of order and alterations.

    Raises:
        RunError: a file is missing or not in IDX format.
    """
    images, labels = _read_idx(folder, "images-idx3", 3), _read_idx(folder, "labels-idx1", 1)
    if len(images) != len(labels):
        msg = f"{folder}: {len(images)} images, but {len(labels)} labels"
        raise RunError(msg, "both files must come from the same set")
    yield from _repeat(list(images), labels, len(images) if rows is None else rows, seed)


def _repeat(images: list[Image], labels: NDArray[np.integer], rows: int, seed: int) -> Iterator[Digit]:
    random = np.random.default_rng(seed)
    for first in range(0, rows, len(images)):
        for index in random.permutation(len(images))[: rows - first]:
            image = images[index] if first == 0 else _alter(images[index], random)
            yield Digit(int(index), image, int(labels[index]))


def _enlarge(image: NDArray[np.float64]) -> Image:
    """Return an 8 x 8 image of values 0 to 16 as 20 x 20 in a border of 4, the proportions of MNIST."""
    large = ndimage.zoom(image / 16.0, 20 / 8, order=3, mode="grid-constant", grid_mode=True)
    canvas = np.zeros((SIZE, SIZE))
    canvas[4:24, 4:24] = large
    return _to_bytes(canvas)


def _alter(image: Image, random: np.random.Generator) -> Image:
    angle = np.deg2rad(random.uniform(-MAX_ROTATION_DEGREES, MAX_ROTATION_DEGREES))
    zoom = random.uniform(1 - MAX_ZOOM, 1 + MAX_ZOOM)
    shift = random.uniform(-MAX_SHIFT_PIXELS, MAX_SHIFT_PIXELS, 2)
    matrix = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) / zoom
    centre = np.array([(SIZE - 1) / 2] * 2)
    altered = ndimage.affine_transform(image / 255.0, matrix, centre - matrix @ (centre + shift), order=1)
    return _to_bytes(altered)


def _to_bytes(image: NDArray[np.float64]) -> Image:
    return np.clip(np.rint(image * 255), 0, 255).astype(np.uint8)


def _read_idx(folder: Path, kind: str, dimensions: int) -> NDArray[np.uint8]:
    found = sorted(path for path in folder.glob(f"*{kind}*") if path.is_file())
    if not found:
        msg = f"no MNIST file *-{kind}-ubyte in {folder}"
        raise RunError(msg, "give --folder the directory with MNIST's own files, or use --dataset digits")
    opened = gzip.open if found[-1].suffix == ".gz" else open
    try:
        with opened(found[-1], "rb") as file:  # the last by name: train-..., where t10k-... lies beside it
            magic, *shape = struct.unpack(f">I{dimensions}I", file.read(4 + 4 * dimensions))
            data = np.frombuffer(file.read(), dtype=np.uint8)
        if magic != 0x800 + dimensions:
            raise ValueError(magic)
        return data.reshape(shape)
    except (OSError, EOFError, ValueError, struct.error) as error:
        msg = f"{found[-1]} is no IDX file of {dimensions} dimensions"
        raise RunError(msg, "unpack MNIST's files again") from error
