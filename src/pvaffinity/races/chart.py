"""A chart of a sweep: for each step, what became of its rounds."""

from __future__ import annotations

__all__ = ["COLOURS", "draw"]

from pathlib import Path

from pvaffinity.races.record import Summary
from pvaffinity.verdicts import Verdict

COLOURS = {
    Verdict.KEPT: "#2f9e6e",
    Verdict.PENDING: "#8a97a8",
    Verdict.STRANDED: "#e3a32e",
    Verdict.ESCAPED: "#d03a3a",
    Verdict.UNKNOWN: "#8456b5",
}
"""Told apart with and without full colour vision, on light and on dark."""


def draw(summary: Summary, path: Path) -> Path:
    """Write the chart as .svg or .png."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    positions = list(range(len(summary.steps)))
    floor = [0.0] * len(positions)
    for verdict in Verdict:
        counts = [step.counts[verdict] for step in summary.steps]
        if any(counts) or verdict in (Verdict.KEPT, Verdict.STRANDED, Verdict.ESCAPED):
            heights = [100 * count / (step.rounds or 1) for count, step in zip(counts, summary.steps, strict=True)]
            bars = axes.bar(
                positions, heights, bottom=floor, width=0.8, color=COLOURS[verdict], label=f"{verdict} ({sum(counts)})"
            )
            axes.bar_label(bars, [str(n or "") for n in counts], label_type="center", fontsize=7, color="white")
            floor = [low + height for low, height in zip(floor, heights, strict=True)]
    divide = sum(step.offset_ms < 0 for step in summary.steps) - 0.5
    axes.axvline(divide, color="#555", linewidth=1, linestyle="--")
    axes.annotate(
        " update acknowledged", (divide, 1.0), xycoords=("data", "axes fraction"), va="bottom", fontsize=8, color="#333"
    )
    axes.set_xticks(positions, [f"{step.offset_ms:+g}" if step.offset_ms else "0+" for step in summary.steps])
    axes.set_ylim(0, 100)
    axes.set_xlabel("pod created, relative to the acknowledgement of the update (ms, measured; numbers are rounds)")
    axes.set_ylabel("share of rounds (%)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(ncols=1, fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140)
    return path
