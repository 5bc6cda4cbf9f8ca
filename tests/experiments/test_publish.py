"""What an experiment leaves behind for people, made of results that are known."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kbit_spark.experiments.findings import Findings, notes, verdict
from kbit_spark.experiments.metrics import METRICS
from kbit_spark.experiments.plan import Plan
from kbit_spark.experiments.publish import comparison_rows, publish, report, show, summary_rows
from kbit_spark.experiments.results import Result
from kbit_spark.telemetry import charts

CHANGES = {"optimizer.learning_rate": (0.001, 0.01)}
PLAN = Plan(id="e1", table="/t/<samples>", table_id="1", version=4, train={}, against={})


def result(configuration: str, seed: int, accuracy: float, **changes: object) -> Result:
    curve = [{"epoch": float(i), "train_loss": 1 / (i + 1), "train_accuracy": accuracy} for i in range(3)]
    data = {
        "experiment": "e1", "configuration": configuration, "iteration": seed, "seed": seed, "version": 4,
        "metrics": {"accuracy": accuracy, "loss": 1 - accuracy, "epoch_s": 2.0, "samples_per_s": 12_345.0},
        "split": "test", "epochs": curve, "resumed": False, "stopped_early": False, "checkpoint": "/c",
        "config": {"model": configuration},
    }  # fmt: skip
    return Result.model_validate({**data, **changes})


def findings(pairs: int, better: Callable[[int], float] = lambda seed: 0.01 + seed / 1000) -> Findings:
    found = []
    for seed in range(pairs):
        found += [result("baseline", seed, 0.9 + seed / 200), result("variant", seed, 0.9 + seed / 200 + better(seed))]
    return Findings.of(PLAN, CHANGES, found, 2 * pairs)


def words(found: Findings) -> dict[str, str]:
    return {m.name: verdict(m, found.comparisons[m.name]) for m in METRICS if m.name in found.comparisons}


def test_verdicts_say_what_is_known_and_what_cannot_be() -> None:
    same = {"epoch_s": "equal in every pair", "samples_per_s": "equal in every pair"}
    assert words(findings(8)) == {"accuracy": "better", "loss": "better", **same}
    assert words(findings(8, lambda seed: -0.01 - seed / 1000)) == {"accuracy": "worse", "loss": "worse", **same}
    assert words(findings(8, lambda seed: 0.01 * (-1) ** seed)) == {
        "accuracy": "no difference shown", "loss": "no difference shown", **same,
    }  # fmt: skip
    few = words(findings(8, lambda seed: 0.01 if seed < 3 else 0))
    assert few == {"accuracy": "too few pairs differ to tell", "loss": "too few pairs differ to tell", **same}
    assert words(findings(5)) == {"accuracy": "too few pairs to tell", "loss": "too few pairs to tell", **same}


def test_notes_tell_what_the_numbers_are_not() -> None:
    assert notes(findings(8)) == []
    (few,) = notes(findings(5))
    assert "5 pairs of runs cannot show a difference" in few
    assert "a test of 4 metrics at 5% needs at least 8" in few
    partial = findings(5)
    assert notes(Findings.of(PLAN, CHANGES, partial.results, 16)) == ["10 of 16 runs have ended."]
    one = Findings.of(PLAN, {}, [result("baseline", 0, 0.9, split="validation", resumed=True)], 1)
    spread, resumed, split = notes(one)
    assert "no spread" in spread
    assert "baseline seed 0" in resumed
    assert "validation" in split
    assert one.label(METRICS[0]) == "validation accuracy, %"
    judged = Findings.of(PLAN, {}, [result("baseline", seed, 0.9, split="validation") for seed in (0, 1)], 2)
    assert notes(judged) == [
        "There are no test rows: accuracy and loss are of the validation split, which chose the weights."
    ]
    neither = [result("baseline", seed, 0.9, split="validation", metrics={"epoch_s": 1.0}) for seed in (0, 1)]
    assert notes(Findings.of(PLAN, {}, neither, 2)) == [
        "There are neither test nor validation rows: nothing tells accuracy and loss."
    ]


def test_runs_without_a_partner_are_summarized_but_not_compared() -> None:
    found = Findings.of(PLAN, CHANGES, [*findings(2).results, result("baseline", 9, 0.5)], 5)
    assert found.summaries["baseline"]["accuracy"].n == 3
    assert found.comparisons["accuracy"].pairs == 2
    nothing = Findings.of(PLAN, CHANGES, [], 16)
    assert (summary_rows(nothing), comparison_rows(nothing), nothing.comparisons) == ([], [], {})
    assert "<svg" not in report(nothing)


def test_files_hold_the_numbers(tmp_path: Path) -> None:
    publish(tmp_path, findings(8))
    document = json.loads((tmp_path / "experiment.json").read_text())
    assert (document["version"], document["changes"]) == (4, {"optimizer.learning_rate": [0.001, 0.01]})
    assert document["summaries"]["baseline"]["accuracy"]["mean"] == pytest.approx(0.9175)
    compared = document["comparisons"]["accuracy"]
    assert (compared["p_value"], compared["adjusted_p_value"], compared["significant"]) == (
        2 / 2**8,
        4 * 2 / 2**8,
        True,
    )
    assert len(document["results"]) == 16
    rows = list(csv.DictReader((tmp_path / "iterations.csv").open()))
    assert [(row["configuration"], row["seed"]) for row in rows[:3]] == [
        ("baseline", "0"),
        ("variant", "0"),
        ("baseline", "1"),
    ]
    assert (rows[1]["accuracy"], rows[0]["best_validation_accuracy"]) == ("0.91", "")


def test_the_report_refers_to_nothing_outside_and_shows_boxes_and_curves() -> None:
    html = report(findings(8))
    assert html.count("<svg") == 4 + 2
    for text in (
        "Test accuracy, %",
        "Training loss by epoch",
        "baseline (n=8)",
        "variant, mean of 8",
        "91.75",
        "+1.35",
    ):
        assert text in html
    assert "/t/&lt;samples&gt;, version 4" in html
    assert "Configuration: variant" in html
    assert not re.search(r'(src|href)="(?!#)', html.replace("xlink:href", "href"))
    assert "against the baseline" not in report(Findings.of(PLAN, {}, [result("baseline", 0, 0.9)], 1))


def test_the_terminal_gets_tables_that_are_not_cut_off(capsys: pytest.CaptureFixture[str]) -> None:
    show(findings(5))
    printed = capsys.readouterr().out
    assert "…" not in printed
    assert re.search(r"^test accuracy, % +variant +5 +92\.20 +0\.95 +\[91\.02, 93\.38\] ", printed, re.MULTILINE)
    assert re.search(
        r"^test accuracy, % +5 +\+1\.20 +\[\+1\.00, \+1\.40\] +\+1\.3 % +0\.0625 +0\.25 +too few", printed, re.M
    )
    assert "variant: optimizer.learning_rate=0.01 (baseline 0.001)\n" in printed
    assert "note: 5 pairs of runs cannot show a difference" in printed


def test_charts_without_values_are_empty() -> None:
    assert charts.boxes({"a": []}) == ""
    assert charts.curves({"a": [([], [])]}, "epoch", percent=False) == ""
    assert charts.boxes({"a": [1.0], "b": []}, percent=True).count("(n=") == 1
