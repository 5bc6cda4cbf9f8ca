"""Checkpoints: one folder per step that is there completely or not at all.

A folder is written under a temporary name, synced, completed by `manifest.json` (sizes and digests of its files, what
was trained on what, and how far) and renamed. The newest folder whose files match their digests wins. State is loaded
as tensors and plain values only, so a checkpoint runs no code.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from kbit_spark.errors import RunError
from kbit_spark.training.manifest import FORMAT, FileDigest, Identity, Manifest

MANIFEST, STATE = "manifest.json", "state.pt"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """An intact checkpoint folder, and the `damaged` newer ones that were passed over for it, each with the reason."""

    path: Path
    manifest: Manifest
    damaged: tuple[str, ...] = ()

    def load(self) -> dict[str, Any]:
        """Return its state on the CPU; only tensors and plain values are ever unpickled."""
        state: dict[str, Any] = torch.load(self.path / STATE, map_location="cpu", weights_only=True)
        return state


@dataclass(frozen=True)
class Keep:
    """Which checkpoints stay: the `last` ones, and the `best` by validation loss."""

    last: int
    best: int


def folder(root: Path, total_steps: int) -> Path:
    """Return the folder of the checkpoint after `total_steps` batches."""
    return root / f"step-{total_steps:09d}"


def save(root: Path, state: Mapping[str, Any], manifest: Manifest, keep: Keep) -> Path:
    """Write a checkpoint atomically, then remove those that need not be kept.

    Raises:
        RunError: the folder cannot be written (disk full, no permission); earlier checkpoints stay.
    """
    final = folder(root, manifest.position.total_steps)
    temporary = root / f".{final.name}-{os.getpid()}"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        torch.save(dict(state), temporary / STATE)
        complete = manifest.model_copy(update={"files": {STATE: _digest(temporary / STATE)}})
        (temporary / MANIFEST).write_text(complete.model_dump_json(indent=2), encoding="utf-8")
        for path in (temporary / STATE, temporary / MANIFEST, temporary):
            sync(path)
        if final.exists():
            shutil.rmtree(final)
        temporary.rename(final)
        sync(root)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as RuntimeError
        shutil.rmtree(temporary, ignore_errors=True)
        msg = f"cannot write the checkpoint {final}: {' '.join(str(error).split())}"
        raise RunError(msg, "free space or choose another checkpoint.dir; earlier checkpoints are intact") from error
    _prune(root, keep, final)
    return final


def newest(root: Path) -> Checkpoint | None:
    """Return the newest intact checkpoint under `root`, None where there is none at all.

    Raises:
        RunError: there are checkpoints, but all of them are damaged.
    """
    damaged: list[str] = []
    for path in sorted(root.glob("step-*"), reverse=True):
        try:
            manifest = read(path).manifest
        except RunError as error:
            log.warning("%s; trying the checkpoint before it", error.message)
            damaged.append(error.message)
        else:
            return Checkpoint(path, manifest, tuple(damaged))
    if damaged:
        msg = f"no checkpoint under {root} is intact: {'; '.join(damaged)}"
        raise RunError(msg, "restore one from a backup, or choose another checkpoint.dir to begin anew")
    return None


def best_folder(root: Path, last: Checkpoint) -> Path:
    """Return the folder with the lowest validation loss of the run whose newest checkpoint is `last`; else `last`'s."""
    best = folder(root, last.manifest.position.best)
    return best if best.is_dir() else last.path


def intact_best_folder(root: Path, last: Checkpoint) -> Path:
    """Return the same where it is intact; of a damaged one the log tells, and `last`'s folder takes its place."""
    best = best_folder(root, last)
    if best != last.path:
        try:
            read(best)
        except RunError as error:
            log.warning("the last weights take the place of the best: %s", error.message)
            return last.path
    return best


def read(path: Path) -> Checkpoint:
    """Return the checkpoint at `path`; its files match their digests.

    Raises:
        RunError: it is missing, incomplete, damaged, or of another format.
    """
    manifest = read_manifest(path)
    for name, wanted in manifest.files.items():
        try:
            found = _digest(path / name)
        except OSError as error:
            raise _damaged(path, f"{name}: {error.strerror or error}") from error
        if found.bytes != wanted.bytes:
            raise _damaged(path, f"{name} has {found.bytes} bytes, not {wanted.bytes}")
        if found.sha256 != wanted.sha256:
            raise _damaged(path, f"{name} does not match its SHA-256")
    return Checkpoint(path, manifest)


def read_manifest(path: Path) -> Manifest:
    """Return the manifest of the checkpoint at `path`, whatever state its other files are in.

    Raises:
        RunError: it is missing, damaged, or of another format.
    """
    try:
        text = (path / MANIFEST).read_text(encoding="utf-8")
        document = json.loads(text)
        found = document.get("format") if isinstance(document, dict) else None
        if isinstance(found, int) and found != FORMAT:
            raise _damaged(path, f"{MANIFEST} is of format {found}, this version reads {FORMAT}")
        return Manifest.model_validate_json(text)
    except OSError as error:
        raise _damaged(path, f"{MANIFEST}: {error.strerror or error}") from error
    except (ValidationError, ValueError) as error:
        raise _damaged(path, f"{MANIFEST} cannot be read") from error


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


def _damaged(path: Path, reason: str) -> RunError:
    return RunError(f"the checkpoint {path} is damaged: {reason}", "restore it from a backup, or remove it")


def _digest(file: Path) -> FileDigest:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return FileDigest(bytes=file.stat().st_size, sha256=digest.hexdigest())


def _prune(root: Path, keep: Keep, written: Path) -> None:
    # a run that went on from before damaged checkpoints writes older ones than those, which keep nothing from staying
    there = [path for path in sorted(root.glob("step-*")) if path <= written]
    stays = {*there[-keep.last :], *_best(there, keep.best)}
    gone = [path for path in there if path not in stays]
    for path in [*gone, *root.glob(".step-*")]:  # those with a dot were left by a killed rank
        shutil.rmtree(path, ignore_errors=True)


def _best(paths: list[Path], count: int) -> list[Path]:
    """Return the paths with the lowest validation losses; of equal ones the earliest."""
    losses: list[tuple[float, Path]] = []
    for path in paths:
        try:
            loss = read_manifest(path).validation_loss
        except RunError:
            continue
        if loss is not None:
            losses.append((loss, path))
    return [path for _, path in sorted(losses)[:count]]


def sync(path: Path) -> None:
    """Make sure that a file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
