"""A trained model to ask, without Spark and without the table: what a training job has left in its checkpoints."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from kbit_spark.datasets.transforms import normalize
from kbit_spark.errors import RunError
from kbit_spark.models import registry
from kbit_spark.training import checkpoint
from kbit_spark.training.champion import read_promoted
from kbit_spark.training.checkpoint import MANIFEST, Checkpoint


class Trained(nn.Module):
    """A model behind what training did to its inputs.

    Args:
        model: the model.
        source: the checkpoint that the weights are from.
    """

    def __init__(self, model: nn.Module, source: Checkpoint) -> None:
        super().__init__()
        self.model, self.source = model, source

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return logits of shape (rows, classes) for inputs of shape (rows, ...), as they stand in the table."""
        run = self.source.manifest.identity
        logits: torch.Tensor = self.model(normalize(inputs, run.scale, run.mean, run.std))
        return logits


def load_trained(path: str | Path) -> Trained:
    """Return the model of a checkpoint on the CPU, in evaluation mode.

    Args:
        path: a checkpoint's folder, or a job's `checkpoint.dir`. Of the latter the model in use is taken, if follow
            mode has promoted one, else the weights with the lowest validation loss, as the job's own test does.

    Raises:
        RunError: there is no checkpoint, or it is damaged, or was made before checkpoints said the input's shape.
        UsageError: the model cannot be made, because its module is not there, for one.
    """
    found = _chosen(Path(path))
    run, shape = found.manifest.identity, found.manifest.lineage.input_shape
    if shape is None:
        msg = f"the checkpoint {found.path} does not say the shape of its model's input"
        raise RunError(msg, "start the training job on its checkpoint.dir again, with one epoch more")
    model = registry.build(run.model, shape, run.classes, run.model_options)
    model.load_state_dict(found.load()["model"])
    return Trained(model, found).eval()


def _chosen(path: Path) -> Checkpoint:
    if (path / MANIFEST).is_file():
        return checkpoint.read(path)
    promoted = read_promoted(path)
    if promoted is not None:
        return checkpoint.read(promoted.path(path))
    newest = checkpoint.newest(path)
    if newest is None:
        msg = f"there is no checkpoint in {path}"
        raise RunError(msg, "name a checkpoint's folder, or the checkpoint.dir of a training job")
    return checkpoint.read(checkpoint.best_folder(path, newest))
