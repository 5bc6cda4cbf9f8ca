"""Exit codes and what the terminal gets, through real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
JOB = """
from kbit_spark.entry import run_job
from kbit_spark.config.train import TrainConfig
from kbit_spark.errors import *

def job(config):
    {body}

run_job(TrainConfig, job, "A job.")
"""
VALID = ("data.table=/t", "checkpoint.dir=/c")


def run(tmp_path: Path, body: str, *arguments: str) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run a job whose body is `body`; return the process and its log."""
    log = tmp_path / "logs/kbit.log"
    command = [sys.executable, "-c", JOB.format(body=body), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KBIT_LOG": str(log)}
    process = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    return process, log.read_text(encoding="utf-8")


def test_a_job_gets_its_configuration(tmp_path: Path):
    process, log = run(tmp_path, "print(config.epochs)", *VALID, "epochs=3")
    assert (process.returncode, process.stdout, process.stderr) == (0, "3\n", "")
    assert "Traceback" not in log


def test_a_job_reads_its_file(tmp_path: Path):
    file = tmp_path / "train.yaml"
    file.write_text("data: {table: /t}\ncheckpoint: {dir: /c}\nepochs: 7\n", encoding="utf-8")
    process, _ = run(tmp_path, "print(config.epochs, config.seed)", "--config", str(file), "seed=2")
    assert process.stdout == "7 2\n"


@pytest.mark.parametrize(
    ("body", "code", "line"),
    [
        ("raise UsageError('wrong', 'do this')", 2, "error: wrong\n  do this\n"),
        ("raise MissingRequirement('no Java')", 3, "error: no Java\n"),
        ("raise RunError('failed')", 1, "error: failed\n"),
        ("raise TrainingError('rank 1 died', 'see the log', rank=1, step=4)", 1, "error: rank 1 died\n  see the log\n"),
        ("raise KeyboardInterrupt", 130, "error: interrupted\n"),
        ("{}['x']", 1, "error: unexpected KeyError: 'x'\n  the stack trace is in the log\n"),
        ("raise ValueError('one\\ntwo')", 1, "error: unexpected ValueError: one\n  the stack trace is in the log\n"),
        ("open('/no/file', 'w')", 1, "error: /no/file: No such file or directory\n  the stack trace is in the log\n"),
        ("raise ValueError", 1, "error: unexpected ValueError: \n  the stack trace is in the log\n"),
    ],
)
def test_the_terminal_gets_a_line_and_the_log_the_stack_trace(tmp_path: Path, body: str, code: int, line: str):
    process, log = run(tmp_path, body, *VALID)
    assert (process.returncode, process.stdout, process.stderr) == (code, "", line)
    assert "Traceback (most recent call last)" in log


def test_a_typo_exits_2_and_names_the_nearest_key(tmp_path: Path):
    process, _ = run(tmp_path, "pass", *VALID, "epoch=3")
    assert process.returncode == 2
    assert process.stderr.startswith("error: the command line: unknown key epoch; did you mean epochs?\n")


def test_flags_with_values_are_overrides_wherever_they_stand(tmp_path: Path):
    options = 'options={"--times": "epochs={}", "--model": "model_options.{}"})'
    job = JOB.format(body="print(config.epochs, config.seed, config.model_options)")
    job = job.replace('"A job.")', f'"A job.", {options}')
    command = [
        sys.executable,
        "-c",
        job,
        *VALID,
        "--times",
        "3",
        "seed=2",
        "--model",
        "a=1",
        "--model",
        "b.c=x",
        "seed=4",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KBIT_LOG": str(tmp_path / "kbit.log")}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (process.stdout, process.stderr) == ("3 4 {'a': 1, 'b': {'c': 'x'}}\n", "")


def test_an_unknown_flag_and_help_are_argparse_own(tmp_path: Path):
    process, _ = run(tmp_path, "pass", "--confg", "x")
    assert process.returncode == 2
    assert "unrecognized arguments" in process.stderr
    process, _ = run(tmp_path, "pass", "--help")
    assert process.returncode == 0
    assert "A job." in process.stdout


def test_a_log_that_cannot_be_written_does_not_stop_the_job(tmp_path: Path):
    (tmp_path / "file").touch()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KBIT_LOG": str(tmp_path / "file/kbit.log")}
    command = [sys.executable, "-c", JOB.format(body="raise RunError('failed')"), *VALID]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stderr) == (1, "error: failed\n")


def test_a_real_interrupt_exits_130(tmp_path: Path):
    body = "import time; print('up', flush=True); time.sleep(60)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KBIT_LOG": str(tmp_path / "kbit.log")}
    command = [sys.executable, "-c", JOB.format(body=body), *VALID]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "error: interrupted\n")


@pytest.mark.parametrize("job", ["stream_ingest", "train_barrier", "experiment"])
def test_the_jobs_start_as_scripts_and_as_text_without_a_file(tmp_path: Path, job: str):
    path = ROOT / f"jobs/{job}.py"
    environment = {**os.environ, "KBIT_LOG": str(tmp_path / "kbit.log")}
    as_script = [sys.executable, str(path), "sead=1"]
    # Databricks compiles the text of a Python task and runs it, without __file__
    text = f"import sys; exec(compile(open({str(path)!r}).read(), 'job', 'exec'), {{'__name__': '__main__'}})"
    as_text = [sys.executable, "-c", text, "sead=1"]
    for command, extra in ((as_script, {}), (as_text, {"PYTHONPATH": str(ROOT)})):
        process = subprocess.run(
            command, env={**environment, **extra}, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert process.returncode == 2, process.stderr
        assert "unknown key sead" in process.stderr
