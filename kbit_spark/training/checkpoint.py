"""Checkpoints: one folder per step that is there completely or not at all.

A folder is written under a temporary name, synced, completed by `manifest.json` (sizes and digests of its files, what
was trained on what, and how far) and renamed. The newest folder whose files match their digests wins.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from kbit_spark.config.train import TrainConfig
from kbit_spark.errors import RunError
from kbit_spark.schemas import Frozen, Snapshot

MANIFEST, STATE = "manifest.json", "state.pt"


class Identity(Frozen):
    """What must be equal for a run to go on from a checkpoint."""

    model: str
    model_options: dict[str, Any]
    input: str
    target: str
    classes: int
    table_id: str
    version: int
    seed: int
    global_batch_size: int
    shuffle_window_rows: int

    @classmethod
    def of(cls, config: TrainConfig, snapshot: Snapshot) -> Identity:
        """Return the identity of a run."""
        data = config.data
        return cls(
            model=config.model,
            model_options=config.model_options,
            input=data.input,
            target=data.target,
            classes=data.classes,
            table_id=snapshot.table_id,
            version=snapshot.version,
            seed=config.seed,
            global_batch_size=config.global_batch_size,
            shuffle_window_rows=data.shuffle_window_rows,
        )


class Position(Frozen):
    """How far a run is: `step` batches of `epoch` and `total_steps` batches in all are in the weights."""

    epoch: int = 0
    step: int = 0
    total_steps: int = 0
    best_loss: float | None = None
    """Lowest validation loss so far, and the `total_steps` of its checkpoint."""
    best_step: int | None = None
    stale_epochs: int = 0
    """Epochs since the validation loss last improved."""
    finished: bool = False


class Manifest(Frozen):
    """What stands in a checkpoint folder."""

    format: int = 1
    identity: Identity
    table: str
    world_size: int
    position: Position
    files: dict[str, dict[str, str | int]]


@dataclass(frozen=True)
class Checkpoint:
    """An intact checkpoint folder."""

    path: Path
    manifest: Manifest

    def load(self) -> dict[str, Any]:
        """Return its state on the CPU; only tensors and plain values are ever unpickled."""
        state: dict[str, Any] = torch.load(self.path / STATE, map_location="cpu", weights_only=True)
        return state


def folder(root: Path, total_steps: int) -> Path:
    """Return the folder of the checkpoint after `total_steps` batches."""
    return root / f"step-{total_steps:09d}"


def save(
    root: Path,
    state: Mapping[str, Any],
    *,
    identity: Identity,
    table: str,
    world_size: int,
    position: Position,
    keep_last: int,
) -> Path:
    """Write a checkpoint atomically, then remove old ones but the last `keep_last` and the best.

    Raises:
        RunError: the folder cannot be written (disk full, no permission); earlier checkpoints stay.
    """
    final = folder(root, position.total_steps)
    temporary = root / f".{final.name}-{os.getpid()}"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        torch.save(dict(state), temporary / STATE)
        manifest = Manifest(
            identity=identity, table=table, world_size=world_size, position=position, files=_digests(temporary)
        )
        (temporary / MANIFEST).write_text(manifest.model_dump_json(indent=2), encoding="utf-8")
        for path in (temporary / STATE, temporary / MANIFEST, temporary):
            _sync(path)
        if final.exists():
            shutil.rmtree(final)
        temporary.rename(final)
        _sync(root)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as RuntimeError
        shutil.rmtree(temporary, ignore_errors=True)
        msg = f"cannot write the checkpoint {final}: {' '.join(str(error).split())}"
        raise RunError(msg, "free space or choose another checkpoint.dir; earlier checkpoints are intact") from error
    _prune(root, keep_last, position.best_step)
    return final


def newest(root: Path) -> Checkpoint | None:
    """Return the newest intact checkpoint under `root`, or None."""
    for path in sorted(root.glob("step-*"), reverse=True):
        if checkpoint := read(path):
            return checkpoint
    return None


def read(path: Path) -> Checkpoint | None:
    """Return the checkpoint at `path`; None where it is missing, incomplete or damaged."""
    try:
        manifest = Manifest.model_validate_json((path / MANIFEST).read_text(encoding="utf-8"))
        return Checkpoint(path, manifest) if manifest.files == _digests(path) else None
    except (OSError, ValidationError, json.JSONDecodeError):
        return None


def check_identity(checkpoint: Checkpoint, wanted: Identity) -> None:
    """Refuse to go on from a checkpoint of something else.

    Raises:
        RunError: naming each difference, and the way out.
    """
    found, expected = checkpoint.manifest.identity.model_dump(), wanted.model_dump()
    differences = [f"{key} is {found[key]!r}, not {expected[key]!r}" for key in expected if found[key] != expected[key]]
    if differences:
        msg = f"the checkpoint {checkpoint.path} is of another run: {'; '.join(differences)}"
        raise RunError(msg, "choose another checkpoint.dir, or set these values back to go on from it")


def _digests(path: Path) -> dict[str, dict[str, str | int]]:
    file = path / STATE
    with file.open("rb") as stream:
        digest = hashlib.sha256()
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return {STATE: {"bytes": file.stat().st_size, "sha256": digest.hexdigest()}}


def _prune(root: Path, keep_last: int, best_step: int | None) -> None:
    kept = None if best_step is None else folder(root, best_step)
    for path in sorted(root.glob("step-*"))[:-keep_last]:
        if path != kept:
            shutil.rmtree(path, ignore_errors=True)
    for path in root.glob(".step-*"):  # left by a killed rank
        shutil.rmtree(path, ignore_errors=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
