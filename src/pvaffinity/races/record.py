"""A sweep's record: histories with the steps they belong to, saved as JSON lines and judged whenever it is asked."""

from __future__ import annotations

__all__ = ["Record", "Step", "Summary", "step_of"]

import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pvaffinity.errors import UserError
from pvaffinity.shape import ShapeError, check_fields, from_json
from pvaffinity.verdicts import History, Judgement, Verdict, judge

FORMAT = "pvaffinity-race/1"
_HEADER = {"offsets_ms": list[float], "rounds": int, "seconds": float, "notes": dict[str, Any] | None}


def step_of(offset_ms: float, steps: Sequence[float]) -> float | None:
    """The step a measured offset counts for: the nearest of the same sign, so that zero always divides.

    A step reaches half-way to its neighbours; the outermost reach as far outwards as inwards. None: too far out.
    """
    side = sorted(s for s in steps if (s < 0) == (offset_ms < 0))
    if not side:
        return None
    nearest = min(side, key=lambda s: abs(s - offset_ms))
    ordered = sorted(steps)
    for edge, neighbour in ((ordered[0], ordered[1:2]), (ordered[-1], ordered[-2:-1])):
        if nearest == edge and neighbour and abs(offset_ms) > abs(edge) and (offset_ms < 0) == (edge < 0):
            reach = abs(edge - neighbour[0]) / 2
            return nearest if abs(offset_ms - edge) <= reach else None
    return nearest


@dataclass(frozen=True)
class Step:
    """The rounds whose measured offset belongs to one step.

    Attributes:
        offset_ms: the step's name.
        measured_ms: median of the measured offsets, None without rounds.
        counts: rounds by verdict; every verdict is a key.
        lost: rounds whose pod was bound to a node the volume has lost, before the update or, by a scheduler that had
            not heard of it yet, after.
    """

    offset_ms: float
    measured_ms: float | None
    counts: Mapping[Verdict, int]
    lost: int = 0

    @property
    def rounds(self) -> int:
        """How many rounds there were."""
        return sum(self.counts.values())


@dataclass(frozen=True)
class Summary:
    """Counts of verdicts by step, and every round that breaks the guarantee or cannot be judged.

    Attributes:
        rounds: how many each step was to have.
        outside: counts of rounds that hit no step; they are judged like all others.
        failures: rounds judged escaped or unknown, with the reason.
        left_out: rounds that do not count, here or above, with the reason: it accuses nobody.
        seconds: how long the sweep took.
    """

    steps: tuple[Step, ...]
    rounds: int
    outside: Mapping[Verdict, int]
    failures: tuple[tuple[History, Judgement], ...]
    seconds: float
    left_out: tuple[tuple[History, Judgement], ...] = ()

    @property
    def total(self) -> int:
        """All rounds that count, those that hit no step included."""
        return sum(self.totals.values())

    @property
    def totals(self) -> Mapping[Verdict, int]:
        """Rounds by verdict over all steps and outside of them."""
        total: Counter[Verdict] = Counter(dict.fromkeys(Verdict, 0))
        for counts in (*(step.counts for step in self.steps), self.outside):
            total.update(counts)
        return total

    @property
    def short(self) -> tuple[Step, ...]:
        """Steps that did not get their rounds: the sweep is then no evidence for them."""
        return tuple(step for step in self.steps if step.rounds < self.rounds)

    @property
    def holds(self) -> bool:
        """No pod escaped, none is unknown, and every step had its rounds, of those that count."""
        return not self.failures and not self.short

    def to_dict(self) -> dict[str, Any]:
        """What a report needs, as JSON."""
        return {
            "rounds": self.rounds,
            "seconds": round(self.seconds, 1),
            "steps": [
                {"offset_ms": s.offset_ms, "measured_ms": s.measured_ms, "counts": _plain(s.counts), "lost": s.lost}
                for s in self.steps
            ],
            "outside": _plain(self.outside),
            "failures": _reasons(self.failures),
            "left_out": _reasons(self.left_out),
        }

    def __str__(self) -> str:
        head = ["offset", "measured", *Verdict, "rounds", "on lost node"]
        rows = [
            [
                f"{s.offset_ms:+g} ms",
                "-" if s.measured_ms is None else f"{s.measured_ms:+.1f} ms",
                *(str(s.counts[v] or "·") for v in Verdict),
                str(s.rounds) + ("" if s.rounds >= self.rounds else f" of {self.rounds}"),
                str(s.lost or "·"),
            ]
            for s in self.steps
        ]
        if sum(self.outside.values()):
            rows.append(
                ["outside", "", *(str(self.outside[v] or "·") for v in Verdict), str(sum(self.outside.values())), ""]
            )
        rows.append(["all", "", *(str(self.totals[v]) for v in Verdict), str(self.total), ""])
        widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
        lines = ["  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in (head, *rows)]
        lines += [f"round {h.name} at {_ms(h.offset_ms)}: {j}" for h, j in self.failures]
        lines += [f"round {h.name} at {_ms(h.offset_ms)} does not count: {j.why}" for h, j in self.left_out]
        return "\n".join(lines)


@dataclass(frozen=True)
class Record:
    """What a sweep did and saw. ``seconds`` is the whole of it, preparations and cleaning included."""

    offsets_ms: tuple[float, ...]
    rounds: int
    histories: tuple[History, ...]
    seconds: float = 0.0
    notes: Mapping[str, str] = field(default_factory=dict)

    def judgements(self) -> list[Judgement]:
        """Every history judged now, by the rules of this version."""
        return [judge(history) for history in self.histories]

    def summary(self) -> Summary:
        """Judge and count."""
        every = list(zip(self.histories, self.judgements(), strict=True))
        judged = [(history, judgement) for history, judgement in every if judgement.counts]
        per_step: dict[float, list[tuple[History, Judgement]]] = {offset: [] for offset in self.offsets_ms}
        outside: list[tuple[History, Judgement]] = []
        for history, judgement in judged:
            step = None if history.offset_ms is None else step_of(history.offset_ms, self.offsets_ms)
            (outside if step is None else per_step[step]).append((history, judgement))
        return Summary(
            steps=tuple(
                Step(
                    offset, _median([h.offset_ms for h, _ in entries]), _count(entries), sum(h.lost for h, _ in entries)
                )
                for offset, entries in sorted(per_step.items())
            ),
            rounds=self.rounds,
            outside=_count(outside),
            failures=tuple((h, j) for h, j in judged if j.verdict in (Verdict.ESCAPED, Verdict.UNKNOWN)),
            seconds=self.seconds,
            left_out=tuple((history, judgement) for history, judgement in every if not judgement.counts),
        )

    def chart(self, path: Path) -> Path:
        """Draw the verdicts over the offsets; the ending (.svg, .png) decides the format. Needs matplotlib."""
        from pvaffinity.races.chart import draw  # matplotlib takes most of a second to import

        return draw(self.summary(), path)

    def save(self, path: Path) -> Path:
        """Write JSON lines: a header, then one history a line."""
        header = {
            "format": FORMAT,
            "offsets_ms": self.offsets_ms,
            "rounds": self.rounds,
            "seconds": self.seconds,
            "notes": dict(self.notes),
        }
        lines = [header, *(history.to_dict() for history in self.histories)]
        path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines), encoding="utf-8")
        return path

    @classmethod
    def load(cls, path: Path) -> Record:
        """Read what :meth:`save` wrote.

        Raises:
            UserError: the file cannot be read, is no such record, or is cut off in the middle of a line.
        """
        fix = "give it a file of JSON lines that a race test has saved (race*.jsonl)"
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}", fix) from error
        except UnicodeDecodeError as error:
            raise UserError(f"{path} is damaged: {error}", fix) from error
        number = 1
        try:
            header = from_json(lines[0]) if lines else {}
            if not isinstance(header, dict) or header.get("format") != FORMAT:
                raise UserError(f"{path} is not a race record of format {FORMAT}", fix)
            check_fields(_HEADER, header)
            histories = []
            for line in lines[1:]:
                number += 1
                if line.strip():
                    histories.append(History.from_dict(from_json(line)))
            notes = header.get("notes") or {}
            return cls(tuple(header["offsets_ms"]), header["rounds"], tuple(histories), header["seconds"], notes)
        except ShapeError as error:
            raise UserError(f"{path} is damaged in line {number}: {error}", fix) from error


def _count(entries: Sequence[tuple[History, Judgement]]) -> dict[Verdict, int]:
    counts = Counter(judgement.verdict for _, judgement in entries)
    return {verdict: counts[verdict] for verdict in Verdict}


def _reasons(entries: Sequence[tuple[History, Judgement]]) -> list[dict[str, Any]]:
    return [{"round": h.name, "offset_ms": h.offset_ms, "why": str(j)} for h, j in entries]


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.median(known), 2) if known else None


def _plain(counts: Mapping[Verdict, int]) -> dict[str, int]:
    return {str(verdict): count for verdict, count in counts.items()}


def _ms(value: float | None) -> str:
    return "an unknown offset" if value is None else f"{value:+.1f} ms"
