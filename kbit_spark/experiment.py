"""An experiment, top to bottom: the same training run with different seeds, or two configurations in turns.

All runs see one table version. A run that has ended leaves a result; whatever ends the process, the next start runs
only what has none, and goes on with an interrupted run from its last checkpoint.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from kbit_spark.config.experiment import ExperimentConfig
from kbit_spark.config.load import dump
from kbit_spark.errors import KbitError, UsageError
from kbit_spark.events import Event
from kbit_spark.experiments.findings import Findings
from kbit_spark.experiments.plan import Plan, Run, keep_plan, read_plan, runs
from kbit_spark.experiments.publish import publish, show
from kbit_spark.experiments.results import Result, read_result, write_result
from kbit_spark.schemas.snapshot import Snapshot
from kbit_spark.session import spark_session
from kbit_spark.storage import is_uri
from kbit_spark.tables.snapshot import resolve
from kbit_spark.telemetry.hub import Telemetry, new_run_id
from kbit_spark.telemetry.report import read_events
from kbit_spark.train import SETTINGS, Emits, check, checkpoint_dir, fit, fitting, worker_settings
from kbit_spark.training import checkpoint
from kbit_spark.training.interrupts import sigterm_interrupts
from kbit_spark.training.lock import alone_in


def run(config: ExperimentConfig) -> Findings:
    """Run what has not been run yet, then say what all runs tell together.

    Raises:
        UsageError: `dir` is no folder, or a configuration can never be right.
        RunError: the folder holds another experiment, another job works in it, or a run failed; see `train.fit`.
    """
    if is_uri(config.dir):
        msg = f"dir={config.dir} is no folder"
        raise UsageError(msg, "name a folder that driver and executors share, e.g. a mounted bucket or volume")
    plan = read_plan(Path(config.dir))
    if plan is not None:
        plan.check(config)
    if plan is None or _left(config, plan):
        plan = _work(config, plan)
    findings = _publish(config, plan)
    show(findings)
    print(f"report: {Path(config.dir) / 'report.html'}", flush=True)
    return findings


def _publish(config: ExperimentConfig, plan: Plan) -> Findings:
    """Write down what the results that are there tell, and return it."""
    found = [read_result(run, plan) for run in runs(config, plan)]
    results = [result for result in found if result is not None]
    findings = Findings.of(plan, config.changes() if config.against else {}, results, len(found))
    publish(Path(config.dir), findings)
    return findings


def _left(config: ExperimentConfig, plan: Plan) -> list[Run]:
    """Return the runs that have no result yet, in their order."""
    return [run for run in runs(config, plan) if read_result(run, plan) is None]


def _begin(config: ExperimentConfig, plan: Plan | None) -> tuple[Plan, Snapshot]:
    """Return the plan, or a new one, with the table version it pins, once it is sure that its runs can begin.

    Raises:
        KbitError: see `train.check` and `train.fitting`.
    """
    data = config.train.data
    snapshot = resolve(data.table, data.version if plan is None else plan.version, data.longest_run_s)
    begun = plan or Plan.of(config, snapshot, new_run_id("experiment"))
    begun.check_table(snapshot)
    for one in {run.configuration: run.config for run in runs(config, begun)}.values():
        check(one)
        fitting(one, snapshot, None)
    return begun, snapshot


def _work(config: ExperimentConfig, plan: Plan | None) -> Plan:
    """Run everything that is left, and return the plan."""
    plan, snapshot = _begin(config, plan)
    with alone_in(Path(config.dir), "dir"):
        keep_plan(Path(config.dir), plan)
        planned, left = list(runs(config, plan)), _left(config, plan)
        print(f"{len(left)} of {len(planned)} runs to do on {plan.table}, version {plan.version}", flush=True)
        reuse = worker_settings(*(run.config for run in planned))
        spark = spark_session("kbit-experiment", {**SETTINGS, **reuse, **config.train.spark})
        with sigterm_interrupts():
            for run in left:
                _iterate(spark, run, plan, snapshot)
                _publish(config, plan)  # whoever looks at a long experiment need not wait for its end
    return plan


def _iterate(spark: SparkSession, run: Run, plan: Plan, snapshot: Snapshot) -> None:
    """Carry out one run, or go on with it, and keep its result."""
    config, name = run.config, f"{plan.id}-{run.name}"
    try:
        resume = checkpoint.newest(checkpoint_dir(config))
        fitted = fitting(config, snapshot, resume)
        events = [] if resume is None else _told(Path(config.telemetry.run_dir) / name / "events.jsonl")
        with Telemetry.open(config.telemetry, "experiment", spark, name, dump(config)) as telemetry:
            outcome = fit(spark, config, fitted, resume, Recorder(telemetry, events))
            result = Result.of(run, plan, outcome, events)
            write_result(run, result)
            telemetry.emit(result.event())
    except KbitError as error:
        error.message = f"{run.configuration}, seed {config.seed}: {error.message}"
        raise


class Recorder:
    """Keeps the events of a run in `events`, and hands them on."""

    def __init__(self, telemetry: Emits, events: list[Event]) -> None:
        self._telemetry, self._events = telemetry, events

    def emit(self, event: Event) -> None:
        """Take an event; never blocks, never raises."""
        self._events.append(event)
        self._telemetry.emit(event)


def _told(file: Path) -> list[Event]:
    """Return what a run told before it was interrupted, nothing where that is lost."""
    return read_events([file]) if file.is_file() else []
