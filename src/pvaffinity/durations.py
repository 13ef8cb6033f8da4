"""How long waits took, for the p99 that every budget names: with ``PVAFFINITY_WAITS=FILE`` set, they are written there.

One line a wait that was met: ``<budget> <seconds>``. Many processes may write to the same file.
``python -m pvaffinity.durations FILE`` prints count, p50, p99 and the longest of each budget.
"""

from __future__ import annotations

__all__ = ["note"]

import os
import sys
from collections import defaultdict
from pathlib import Path

from pvaffinity.budgets import Budget


def note(budget: Budget, seconds: float) -> None:
    """Remember that a wait within this budget was met after so many seconds."""
    if file := os.environ.get("PVAFFINITY_WAITS"):
        with Path(file).open("a", encoding="utf-8") as lines:
            lines.write(f"{budget.name} {seconds:.3f}\n")


def table(text: str) -> list[str]:
    """Count, p50, p99 and maximum of every budget, in seconds, one line each, with a line of headings."""
    taken: dict[str, list[float]] = defaultdict(list)
    for name, _, seconds in (line.partition(" ") for line in text.splitlines()):
        taken[name].append(float(seconds))
    rows = [f"{'budget':16} {'count':>6} {'p50':>8} {'p99':>8} {'max':>8}"]
    for name, each in sorted(taken.items()):
        each.sort()
        p50, p99 = (each[min(len(each) - 1, int(len(each) * part))] for part in (0.5, 0.99))
        rows.append(f"{name:16} {len(each):6} {p50:8.3f} {p99:8.3f} {each[-1]:8.3f}")
    return rows


if __name__ == "__main__":
    print("\n".join(table(Path(sys.argv[1]).read_text(encoding="utf-8"))))
