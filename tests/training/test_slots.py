"""What the training stage asks of a cluster, and what it says where it cannot have that."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pyspark import SparkConf, SparkContext

from kbit_spark.config.train import TrainConfig
from kbit_spark.errors import MissingRequirement, UsageError
from kbit_spark.training.barrier import _profile
from kbit_spark.training.slots import check_gpus, check_slots
from tests.fixtures.jobs import SMALL, TRAIN, start
from tests.fixtures.samples import write_samples
from tests.training.conftest import Driver
from tests.training.test_barrier import config


class Context:
    """A SparkContext as far as its settings go."""

    def __init__(self, master: str, **settings: str) -> None:
        self.master = master
        self._settings = {f"spark.{key.replace('_', '.')}": value for key, value in settings.items()}

    def getConf(self) -> SparkConf:  # noqa: N802 - Spark's name
        return SparkConf(loadDefaults=False).setAll(list(self._settings.items()))


def profile(
    master: str, device: str = "auto", cpus: int | None = None, settings: dict[str, str] | None = None
) -> dict[str, float] | None:
    data = {"data": {"table": "t"}, "checkpoint": {"dir": "c"}, "device": device, "cpus_per_rank": cpus}
    sc: SparkContext = Context(master, **(settings or {}))  # type: ignore[assignment]
    made = _profile(sc, TrainConfig.model_validate(data))
    return None if made is None else {name: request.amount for name, request in made.taskResources.items()}


GPUS, ONE_GPU = {"executor_resource_gpu_amount": "4"}, {"task_resource_gpu_amount": "1"}


@pytest.mark.parametrize(
    ("master", "settings", "there", "missing"),
    [
        ("local[4]", {}, 1, "torch finds 1 GPUs on this machine for world_size=2"),
        ("local[4]", {}, 2, None),
        ("local[4]", GPUS, 0, "torch finds 0 GPUs"),
        ("local-cluster[2,1,512]", {}, 2, "Spark has no GPUs to give to the ranks"),
        ("yarn", {}, 0, "Spark has no GPUs to give to the ranks"),
        ("yarn", GPUS, 0, None),
        ("yarn", ONE_GPU, 0, None),
    ],
)
def test_ranks_that_must_have_gpus_are_refused_before_they_start(
    master: str, settings: dict[str, str], there: int, missing: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    sc: SparkContext = Context(master, **settings)  # type: ignore[assignment]
    data = {"data": {"table": "t"}, "checkpoint": {"dir": "c"}, "world_size": 2}
    for device in ("auto", "cpu", "cuda"):
        wanted = TrainConfig.model_validate({**data, "device": device})
        if device == "cuda" and missing is not None:
            with pytest.raises(MissingRequirement, match=f"^device=cuda, but {missing}"):
                check_gpus(sc, wanted)
        else:
            check_gpus(sc, wanted)


def test_the_stage_asks_for_what_the_application_does_not() -> None:
    assert profile("yarn") is None
    assert profile("yarn", settings=GPUS) == {"cpus": 1.0, "gpu": 1.0}
    assert profile("yarn", "cpu", settings=GPUS) is None
    assert profile("yarn", settings={**GPUS, **ONE_GPU}) is None
    assert profile("yarn", cpus=4, settings={**GPUS, **ONE_GPU}) == {"cpus": 4.0, "gpu": 1.0}
    assert profile("yarn", cpus=4) == {"cpus": 4.0}
    assert profile("yarn", cpus=4, settings={"task_cpus": "4"}) is None
    with pytest.raises(UsageError, match="cpus_per_rank=2 needs a cluster"):
        profile("local[4]", cpus=2)


def test_dynamic_allocation_is_explained() -> None:
    sc: SparkContext = Context("yarn", dynamicAllocation_enabled="true")  # type: ignore[assignment]
    with pytest.raises(UsageError, match="must all run at once") as caught:
        check_slots(sc, 2)
    assert "spark.dynamicAllocation.enabled=false" in caught.value.hint


def test_more_cores_than_an_executor_has_are_refused_at_once(driver: Driver, tmp_path: Path) -> None:
    table = write_samples(tmp_path / "samples", train=100, validation=0, test=0)
    answer = driver.train(config(table, tmp_path, cpus_per_rank=2))
    assert "world_size=2 needs 2 slots at the same time, but there are 0" in answer["error"]["message"]
    assert "2 cores a rank" in answer["error"]["message"]
    assert answer["seconds"] < 5


def test_a_rank_gets_the_cores_that_it_asks_for(tmp_path: Path) -> None:
    table = write_samples(tmp_path / "samples", train=100, validation=0, test=0)
    counted = {"model": "tests.training.models:counted", "model_options": {"file": str(tmp_path / "threads")}}
    telemetry = {"run_dir": str(tmp_path / "runs")}
    data = config(table, tmp_path, world_size=1, epochs=1, cpus_per_rank=2, telemetry=telemetry, **counted)
    code, output = start(tmp_path, data, ("--master", "local-cluster[1,2,1024]", *SMALL), script=TRAIN).wait()
    assert code == 0, output
    assert (tmp_path / "threads").read_text() == "2"
