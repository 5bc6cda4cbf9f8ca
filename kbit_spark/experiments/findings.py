"""What the runs of an experiment say together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbit_spark.experiments.metrics import METRICS, Metric
from kbit_spark.experiments.plan import BASELINE, VARIANT, Plan
from kbit_spark.experiments.results import Result
from kbit_spark.experiments.statistics import CONFIDENCE, SIGNIFICANCE, Comparison, Summary, compare, summarize


@dataclass(frozen=True)
class Findings:
    """The results with their statistics.

    Args:
        plan: the experiment's.
        changes: keys in which the second configuration differs, each with both values; empty without one.
        results: of all runs that have ended.
        runs: how many runs there will be in all.
        summaries: by configuration and metric.
        comparisons: by metric; empty without a second configuration.
    """

    plan: Plan
    changes: Mapping[str, tuple[Any, Any]]
    results: Sequence[Result]
    runs: int
    summaries: Mapping[str, Mapping[str, Summary]]
    comparisons: Mapping[str, Comparison]

    @classmethod
    def of(cls, plan: Plan, changes: Mapping[str, tuple[Any, Any]], results: Sequence[Result], runs: int) -> Findings:
        """Summarize results, and compare the configurations if there are two."""
        names = [BASELINE, VARIANT] if changes else [BASELINE]
        summaries = {name: _summaries([r for r in results if r.configuration == name]) for name in names}
        pairs = {metric.name: _pairs(results, metric.name) for metric in METRICS}
        return cls(plan, changes, results, runs, summaries, compare(pairs) if changes else {})

    def label(self, metric: Metric) -> str:
        """Return a metric's name for people, with its unit and the split that it was measured on."""
        splits = sorted({result.split for result in self.results})
        split = f"{' and '.join(splits)} " if metric.name in ("accuracy", "loss") else ""
        return f"{split}{metric.label}{metric.suffix}"

    def values(self, configuration: str, metric: str) -> list[float]:
        """Return what the runs of a configuration came to, in the order of the seeds."""
        found = [r for r in self.results if r.configuration == configuration and metric in r.metrics]
        return [result.metrics[metric] for result in sorted(found, key=lambda r: r.seed)]

    def document(self) -> dict[str, Any]:
        """Return everything as JSON-ready data."""
        return {
            "experiment": self.plan.id,
            "table": self.plan.table,
            "version": self.plan.version,
            "runs": self.runs,
            "confidence": CONFIDENCE,
            "significance": SIGNIFICANCE,
            "changes": {key: list(values) for key, values in self.changes.items()},
            "summaries": {
                name: {metric: vars(summary) for metric, summary in found.items()}
                for name, found in self.summaries.items()
            },
            "comparisons": {
                name: {**vars(found), "significant": found.is_significant, "verdict": verdict(metric, found)}
                for metric in METRICS
                if (found := self.comparisons.get(name := metric.name)) is not None
            },
            "notes": notes(self),
            "results": [result.model_dump(mode="json") for result in self.results],
        }


def verdict(metric: Metric, comparison: Comparison) -> str:
    """Say what a comparison means for the second configuration."""
    if comparison.is_significant:
        return "better" if (comparison.tendency > 0) == metric.more_is_better else "worse"
    if not comparison.differing:
        return "equal in every pair"
    if comparison.could_be_significant:
        return "no difference shown"
    return "too few pairs differ to tell" if comparison.pairs >= comparison.pairs_needed else "too few pairs to tell"


def notes(findings: Findings) -> list[str]:
    """Return what a reader must know to take the numbers for no more than they are."""
    found = []
    if len(findings.results) < findings.runs:
        found.append(f"{len(findings.results)} of {findings.runs} runs have ended.")
    elif findings.comparisons:
        pairs = max(comparison.pairs for comparison in findings.comparisons.values())
        needed = max(comparison.pairs_needed for comparison in findings.comparisons.values())
        if pairs < needed:
            found.append(
                f"{pairs} pairs of runs cannot show a difference: a test of {len(findings.comparisons)} metrics at "
                f"{SIGNIFICANCE:.0%} needs at least {needed}, whatever they say. Start again with iterations={needed}."
            )
    if max((s.n for one in findings.summaries.values() for s in one.values()), default=0) == 1:
        found.append("One run has no spread: start again with more iterations.")
    if resumed := [f"{r.configuration} seed {r.seed}" for r in findings.results if r.resumed]:
        found.append(f"Interrupted and gone on with, their times of undisturbed epochs only: {', '.join(resumed)}.")
    if judged := [result for result in findings.results if result.split == "validation"]:
        if any("accuracy" in result.metrics for result in judged):
            split = "of the validation split, which chose the weights"
            found.append(f"There are no test rows: accuracy and loss are {split}.")
        else:
            found.append("There are neither test nor validation rows: nothing tells accuracy and loss.")
    return found


def _summaries(results: Sequence[Result]) -> dict[str, Summary]:
    found = {}
    for metric in METRICS:
        summary = summarize([result.metrics[metric.name] for result in results if metric.name in result.metrics])
        if summary is not None:
            found[metric.name] = summary
    return found


def _pairs(results: Sequence[Result], metric: str) -> tuple[list[float], list[float]]:
    """Return the values of both configurations, of the seeds for which both have one."""
    by_seed: dict[int, dict[str, float]] = {}
    for result in results:
        if metric in result.metrics:
            by_seed.setdefault(result.seed, {})[result.configuration] = result.metrics[metric]
    both = [by_seed[seed] for seed in sorted(by_seed) if len(by_seed[seed]) == 2]
    return [pair[BASELINE] for pair in both], [pair[VARIANT] for pair in both]
