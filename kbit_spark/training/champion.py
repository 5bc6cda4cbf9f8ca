"""The model in use: `promoted.json` in the folder of the checkpoints says which one it is, and why.

The champion's checkpoint lies in a folder of its own, so that it outlives the others. The file is renamed into its
place, so readers always see a whole one that points to a whole checkpoint.
"""

from __future__ import annotations

import os
import shutil
from datetime import datetime, timezone
from itertools import count
from pathlib import Path

from pydantic import ValidationError

from kbit_spark.errors import RunError
from kbit_spark.schemas.base import Frozen
from kbit_spark.training import checkpoint as checkpoints
from kbit_spark.training.checkpoint import MANIFEST, Checkpoint, sync
from kbit_spark.training.manifest import Window
from kbit_spark.training.promotion import Paired

POINTER, FOLDER = "promoted.json", "champion"
_ANEW = f"restore it, or remove {POINTER}: the newest model is then promoted as the first"


class Champion(Frozen):
    """The checkpoint in use, and what it was promoted for."""

    checkpoint: str
    """Its folder, relative to that of `promoted.json`."""

    window: int
    """-1 for the result of a run without follow mode."""

    version: int
    """The last table version that it has learnt."""

    accuracy: float | None
    """On the hold-out when it was promoted; None where the hold-out had no rows."""

    holdout_rows: int
    p_value: float
    """Of the paired test against the champion before; 1 for the first one, which nobody was compared with."""

    promoted_at: datetime


class Promoted(Frozen):
    """What stands in `promoted.json`."""

    decided_window: int
    """The last window that was held against the champion, promoted or not."""

    champion: Champion

    def path(self, root: Path) -> Path:
        """Return the folder of the champion's checkpoint."""
        return root / self.champion.checkpoint

    def read(self, root: Path) -> Checkpoint:
        """Return the champion's checkpoint.

        Raises:
            RunError: it is not there, or damaged.
        """
        try:
            return checkpoints.read(self.path(root))
        except RunError as error:
            msg = f"the model that {root / POINTER} names as the one in use cannot be read: {error.message}"
            raise RunError(msg, _ANEW) from error


def read_promoted(root: Path) -> Promoted | None:
    """Return what `promoted.json` under `root` says, None where there is none.

    Raises:
        RunError: it cannot be read.
    """
    file = root / POINTER
    try:
        return Promoted.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        msg = f"cannot read {file}: {' '.join(str(error).split())}"
        raise RunError(msg, _ANEW) from error


def adopt(root: Path, checkpoint: Path, version: int) -> None:
    """Make the result of a run without follow mode the first champion; where there is a champion, do nothing.

    Raises:
        RunError: the folder cannot be written, or `promoted.json` cannot be read.
    """
    if read_promoted(root) is None:
        _promote(root, checkpoint, -1, version, Paired(0, 0, 0, 0), 1.0)


def decide(root: Path, checkpoint: Path, window: Window, paired: Paired, significance: float) -> Promoted:
    """Promote the checkpoint of a finished window if it is better than the champion, or if there is none.

    Deciding once more about the same window changes nothing.

    Raises:
        RunError: the folder cannot be written.
    """
    before = read_promoted(root)
    if before is None or paired.is_better(significance):
        p_value = 1.0 if before is None else paired.p_value
        return _promote(root, checkpoint, window.number, window.last, paired, p_value)
    try:
        return _write(root, Promoted(decided_window=window.number, champion=before.champion))
    except OSError as error:
        raise _unwritable(root, error) from error


def _promote(root: Path, checkpoint: Path, window: int, version: int, paired: Paired, p_value: float) -> Promoted:
    try:
        folder = _keep(root, checkpoint)
        champion = Champion(
            checkpoint=folder.relative_to(root).as_posix(),
            window=window,
            version=version,
            accuracy=paired.new_accuracy if paired.rows else None,
            holdout_rows=paired.rows,
            p_value=p_value,
            promoted_at=datetime.now(timezone.utc),
        )
        promoted = _write(root, Promoted(decided_window=window, champion=champion))
        for other in folder.parent.iterdir():
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)
    except OSError as error:
        raise _unwritable(root, error) from error
    return promoted


def _unwritable(root: Path, error: OSError) -> RunError:
    msg = f"cannot write {root / POINTER}: {' '.join(str(error).split())}"
    return RunError(msg, "free space, then start again: the window is trained, and is compared once more")


def _keep(root: Path, checkpoint: Path) -> Path:
    """Return a second folder of a checkpoint's files, which are never changed: links, or copies where none can be."""
    final = _place(root / FOLDER, checkpoint)
    if not _is_intact(final):
        shutil.rmtree(final, ignore_errors=True)
        temporary = final.with_name(f".{final.name}")
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.copytree(checkpoint, temporary, copy_function=_link_or_copy)
        temporary.rename(final)
        sync(final.parent)
    return final


def _is_intact(folder: Path) -> bool:
    try:
        checkpoints.read(folder)
    except RunError:
        return False
    return True


def _place(folder: Path, checkpoint: Path) -> Path:
    """Return the folder that holds the checkpoint's files, or may; a run before may have left one of the same name."""
    mine, names = (checkpoint / MANIFEST).read_bytes(), (f"-{number}" if number else "" for number in count())
    places = (folder / f"{checkpoint.name}{name}" for name in names)
    return next(place for place in places if _manifest(place) in (None, mine))


def _manifest(folder: Path) -> bytes | None:
    try:
        return (folder / MANIFEST).read_bytes()
    except FileNotFoundError:
        return None


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # mounted buckets have no links
        shutil.copy2(source, target)
        sync(Path(target))


def _write(root: Path, promoted: Promoted) -> Promoted:
    temporary = root / f".{POINTER}"
    temporary.write_text(promoted.model_dump_json(indent=2) + "\n", encoding="utf-8")
    sync(temporary)
    temporary.replace(root / POINTER)
    sync(root)
    return promoted
