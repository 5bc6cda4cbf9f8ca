"""The ingest as RAPIDS plans it: all of it on the GPU, from the rows to the files; no GPU is needed for that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

ROOT = Path(__file__).parents[2]
CASES = ("json", "mongo", "avro", "confluent", "soe", "protobuf", "several")
ON_GPU = ["GpuColumnarToRow", "GpuProject", "GpuCoalesceBatches", "GpuFilter", "GpuProject", "GpuRowToColumnar", "Scan"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plans")


@pytest.fixture(scope="module")
def plans(folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.gpu.plans", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[:6000]
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("table", ["samples", "rejected"])
def test_nothing_but_the_scan_of_the_batch_is_left_to_the_cpu(plans: dict[str, Any], name: str, table: str) -> None:
    (scan,) = plans[name]["explained"][table]
    assert scan.startswith("! <RDDScanExec> cannot run on GPU")
    assert plans[name]["nodes"][table] == ON_GPU


def test_topics_without_a_kernel_are_decoded_below_the_gpu(plans: dict[str, Any]) -> None:
    for table in ("samples", "rejected"):
        assert plans["mixed"]["nodes"][table] == [*ON_GPU[:-1], "Project", "Scan"]


def test_ranges_that_one_task_reads_are_put_together_as_rows(plans: dict[str, Any]) -> None:
    nodes = plans["avro"]["nodes"]["gathered"]
    assert nodes[-4:] == ["GpuProject", "GpuRowToColumnar", "Coalesce", "Scan"]


@pytest.mark.parametrize("name", CASES)
def test_the_shadow_check_decodes_below_on_the_gpu_and_above_on_the_cpu(plans: dict[str, Any], name: str) -> None:
    nodes = plans[name]["nodes"]["shadow"]
    boundary = nodes.index("GpuColumnarToRow", nodes.index("Project"))
    assert nodes[boundary - 1 :] == ["Project", "GpuColumnarToRow", "GpuProject", "GpuRowToColumnar", "Scan"]


@pytest.mark.parametrize("name", [*CASES, "mixed"])
def test_the_files_are_written_by_a_transaction_of_rapids_and_committed_as_ever(
    plans: dict[str, Any], folder: Path, name: str
) -> None:
    assert plans[name]["write"] == {
        "transaction": "org.apache.spark.sql.delta.rapids.GpuOptimisticTransaction",
        "rows": 0,
        "again": False,
    }
    table = DeltaTable(str(folder / name))
    assert table.history(1)[0]["userMetadata"] == "said in the commit"
    assert table.transaction_version("app") == 7


def test_both_engines_read_the_same_ids_from_headers(plans: dict[str, Any]) -> None:
    expected = [None, None, None, None, 258, None, 2**31 - 1, None]
    assert plans["schema_ids"] == [expected, expected]


def test_the_session_of_a_batch_is_the_one_that_rapids_plans_with(plans: dict[str, Any]) -> None:
    assert plans["stream_is_active"]
