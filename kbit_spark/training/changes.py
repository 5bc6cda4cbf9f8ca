"""What has changed in a configuration since a checkpoint was made, for a person who wonders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kbit_spark.config.train import TrainConfig
from kbit_spark.training.manifest import Manifest

TELLING = ("epochs", "precision", "strategy", "averaging", "optimizer", "early_stopping")
"""Settings that a run may go on with changed, and which change what it learns; the rest is the same (`Identity`), or
only about where and how it runs."""


def changed(manifest: Manifest, config: TrainConfig) -> list[str]:
    """Return what is new among the telling settings, each with its old value; they count from the next step on."""
    before, now = manifest.lineage.config, config.model_dump(mode="json")
    old = dict(_flat({key: before[key] for key in TELLING if key in before}))
    new = dict(_flat({key: now[key] for key in TELLING}))
    return [f"{key} is {new[key]} now, was {old[key]}" for key in new if key in old and new[key] != old[key]]


def nothing_left(manifest: Manifest, config: TrainConfig) -> str:
    """Return why there is nothing left to train and the way out, empty where there is; a window never is the last."""
    position, patience = manifest.position, config.early_stopping.patience_epochs
    if manifest.window is not None or not position.finished:
        return ""
    if 0 < patience <= position.stale_epochs:
        return _only_the_test(f"training stopped early in epoch {position.epoch}", "early_stopping.patience_epochs")
    return _only_the_test(f"all {position.epoch} epochs are done", "epochs") if position.epoch >= config.epochs else ""


def _only_the_test(why: str, key: str) -> str:
    return f"{why}, so only the test follows: raise {key}, or choose another checkpoint.dir"


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
