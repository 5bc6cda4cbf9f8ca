"""Charts of the report as inline SVG. Axes and text take the page's colour, so they follow light and dark."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

PALETTE = ("#3b82f6", "#f59e0b", "#10b981", "#ec4899", "#8b5cf6")
PARTS = (*PALETTE, "#64748b", "#ef4444", "#14b8a6")
_INK = "#010203"  # replaced by currentColor in the SVG
_STYLE: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "kbit", "font.family": "sans-serif", "font.size": 11}

Series = Mapping[str, tuple[Sequence[float], Sequence[float]]]


def lines(series: Series, x_label: str, percent: bool = False, integers: bool = False, zero: bool = False) -> str:
    """Return one curve per series (name to x and y), labelled, as SVG; empty without points."""
    series = {name: points for name, points in series.items() if points[0]}
    if not series:
        return ""
    with rc_context(_STYLE):
        figure, axes = _axes(3.0)
        for colour, (name, (x, y)) in zip(PALETTE * len(series), series.items(), strict=False):
            marker = "o" if len(x) <= 40 else ""
            axes.plot(x, y, color=colour, linewidth=2, marker=marker, markersize=4, label=name)
        axes.set_xlabel(x_label)
        if percent:
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        if zero:
            axes.set_ylim(bottom=0)
        if integers:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if len(series) > 1:
            axes.legend(frameon=False, labelcolor=_INK)
        return _svg(figure)


def bars(values: Sequence[tuple[str, float]], x_label: str) -> str:
    """Return horizontal bars, the first on top, as SVG; empty without values."""
    if not values:
        return ""
    with rc_context(_STYLE):
        figure, axes = _axes(0.8 + 0.32 * len(values))
        names = [name if len(name) <= 34 else name[:33] + "…" for name, _ in values]
        places = range(len(values))
        axes.barh(places, [value for _, value in values], color=PALETTE[0], height=0.62)
        axes.set_yticks(list(places), names)
        axes.invert_yaxis()
        axes.grid(False, axis="y")
        axes.set_xlabel(x_label)
        return _svg(figure)


def stacked(rows: Mapping[str, Mapping[str, float]]) -> str:
    """Return one horizontal bar per row, the first on top, made of its named shares, as SVG; empty without rows."""
    if not rows:
        return ""
    with rc_context(_STYLE):
        figure, axes = _axes(1.3 + 0.36 * len(rows))
        left = [0.0] * len(rows)
        for colour, part in zip(
            PARTS, dict.fromkeys(name for shares in rows.values() for name in shares), strict=False
        ):
            widths = [shares.get(part, 0.0) for shares in rows.values()]
            axes.barh(range(len(rows)), widths, left=left, color=colour, height=0.62, label=part)
            left = [begin + width for begin, width in zip(left, widths, strict=True)]
        axes.set_yticks(range(len(rows)), list(rows))
        axes.invert_yaxis()
        axes.grid(False, axis="y")
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        figure.legend(loc="outside lower center", ncols=4, frameon=False, labelcolor=_INK)
        return _svg(figure)


def boxes(values: Mapping[str, Sequence[float]], percent: bool = False) -> str:
    """Return one box per name (quartiles, whiskers to the last value within 1.5 quartile ranges) as SVG.

    The values themselves are drawn on it, for a few of them make no box that could be trusted. Empty without values.
    """
    values = {name: found for name, found in values.items() if found}
    if not values:
        return ""
    with rc_context(_STYLE):
        figure, axes = _axes(3.0)
        ink = {"color": _INK, "linewidth": 1.2}
        for place, (colour, found) in enumerate(zip(PALETTE * len(values), values.values(), strict=False)):
            axes.boxplot(
                [found], positions=[place], widths=0.45, showfliers=False, patch_artist=True, manage_ticks=False,
                boxprops={"facecolor": colour, "alpha": 0.35, "edgecolor": _INK},
                medianprops={"color": colour, "linewidth": 2.5}, whiskerprops=ink, capprops=ink,
            )  # fmt: skip
            middle = (len(found) - 1) / 2
            beside = [place + 0.3 * (number - middle) / max(len(found), 8) for number in range(len(found))]
            axes.plot(beside, found, "o", color=colour, markersize=4, markeredgecolor=_INK, markeredgewidth=0.5)
        axes.set_xticks(range(len(values)), [f"{name} (n={len(found)})" for name, found in values.items()])
        axes.set_xlim(-0.6, len(values) - 0.4)
        axes.grid(False, axis="x")
        if percent:
            axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.6g}%")
        return _svg(figure)


def curves(groups: Mapping[str, Sequence[tuple[Sequence[float], Sequence[float]]]], x_label: str, percent: bool) -> str:
    """Return the curves (x and y) of each group's members, thin, and their mean, thick, as SVG; empty without points.

    The mean at an x is that of the members that have it.
    """
    groups = {name: found for name, members in groups.items() if (found := [points for points in members if points[0]])}
    if not groups:
        return ""
    with rc_context(_STYLE):
        figure, axes = _axes(3.0)
        for colour, (name, members) in zip(PALETTE * len(groups), groups.items(), strict=False):
            at: dict[float, list[float]] = {}
            for x, y in members:
                axes.plot(x, y, color=colour, linewidth=0.8, alpha=0.4)
                for place, value in zip(x, y, strict=True):
                    at.setdefault(place, []).append(value)
            mean = [sum(at[place]) / len(at[place]) for place in sorted(at)]
            marker = "o" if len(mean) <= 40 else ""
            label = f"{name}, mean of {len(members)}"
            axes.plot(sorted(at), mean, color=colour, linewidth=2.2, marker=marker, markersize=4, label=label)
        axes.set_xlabel(x_label)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if percent:
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.legend(frameon=False, labelcolor=_INK)
        return _svg(figure)


def _axes(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6.4, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(_INK)
    axes.tick_params(colors=_INK, length=0)
    axes.xaxis.label.set_color(_INK)
    axes.grid(True, axis="both", color=_INK, alpha=0.12, linewidth=0.8)
    axes.set_axisbelow(True)
    return figure, axes


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(
        r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1), count=1
    )
    return svg.replace(_INK, "currentColor")
