"""The table of all mutants: what each breaks, what noticed, and what the suite cannot see; for people and as JSON."""

from __future__ import annotations

__all__ = ["headline", "markdown", "write"]

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pvaffinity.mutants.catalogue import Mutant
from pvaffinity.mutants.judging import Judgement, Verdict
from pvaffinity.paths import write_whole

Rows = Sequence[tuple[Mutant, Judgement]]
_INTRODUCTION = """\
# What the suite notices, and what it does not

Made by `{command}`, on Kubernetes {version}. Each mutant is Kubernetes with one text in one file replaced
(`mutants/*.toml`); the suite ran on a gate-off and a gate-on cluster of the local provider with that one binary
altered.

- **killed**: a check of the promise that it breaks is red. **green**: a harmless change, and nothing is.
- *red*: checks of that promise that failed. *stray*: failed checks of other promises. *not judged*: checks that were to
  run and said nothing. A stray or unjudged check without a reason in the data makes the mutant a **misfire**.
- *checks*: how many said something. All run but the slow one, the race sweep, and of the immutability matrix all but a
  sample of changes; where *all* is added, the whole matrix.

{headline}
"""


def headline(rows: Rows) -> str:
    """One sentence about all of them."""
    counts = Counter(judgement.verdict for _, judgement in rows)
    breaks = sum(not mutant.harmless for mutant, _ in rows)
    parts = [f"{counts[Verdict.KILLED]} of {breaks} breaks killed"] if breaks else []
    if harmless := len(rows) - breaks:
        parts.append(f"{counts[Verdict.GREEN]} of {harmless} harmless changes green")
    others = [v for v in Verdict if v not in (Verdict.KILLED, Verdict.GREEN) and counts[v]]
    return "; ".join([*parts, *(f"{counts[v]} {v}" for v in others)]) + "."


def markdown(rows: Rows, version: str, command: str) -> str:
    """The whole page."""
    parts = [_INTRODUCTION.format(command=command, version=version, headline=headline(rows)), "## Breaks\n"]
    parts += _table(
        ("mutant", "what it does", "promise", "verdict", "noticed by", "red", "stray", "not judged", "checks"),
        [_row(mutant, judgement) for mutant, judgement in rows if not mutant.harmless],
    )
    parts += ["\n## Harmless changes\n"]
    parts += _table(
        ("mutant", "what it does", "verdict", "red", "not judged", "checks"),
        [
            (m.name, f"{m.component}: {m.does}", f"**{j.verdict}**", len(j.stray), len(j.unjudged), _checks(j))
            for m, j in rows
            if m.harmless
        ],
    )
    unseen = [(m, j) for m, j in rows if m.survives or j.verdict is Verdict.SURVIVED]
    if unseen:
        parts += ["\n## What the suite cannot see\n"]
        parts += [f"- `{m.name}`: {m.does}. {m.survives or 'Nobody knows why yet.'}" for m, _ in unseen]
    reasons = [(m, cause, why) for m, _ in rows for cause, why in m.also.items()]
    if reasons:
        parts += ["\n## Why others are red or were not judged\n"]
        parts += [f"- `{m.name}`, {cause}: {why}" for m, cause, why in reasons]
    trouble = [(m, j) for m, j in rows if not j.verdict.fine]
    if trouble:
        parts += ["\n## What is wrong\n"]
        parts += [f"- `{m.name}`, {j.verdict}: {_trouble(j)}" for m, j in trouble]
    return "\n".join(parts) + "\n"


def write(rows: Rows, directory: Path, version: str, command: str) -> Path:
    """Write ``mutants.json`` and ``mutants.md``; answers the latter's path."""
    directory.mkdir(parents=True, exist_ok=True)
    data = {
        "kubernetes": version,
        "mutants": [
            {**asdict(judgement), "component": mutant.component, "does": mutant.does} for mutant, judgement in rows
        ],
    }
    write_whole(directory / "mutants.json", json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    return write_whole(directory / "mutants.md", markdown(rows, version, command))


def _row(mutant: Mutant, judgement: Judgement) -> tuple[object, ...]:
    killers = ", ".join(f"{name} ({n})" if n > 1 else name for name, n in judgement.killers.items())
    return (
        mutant.name,
        f"{mutant.component}: {mutant.does}",
        ", ".join(mutant.breaks),
        f"**{judgement.verdict}**",
        killers,
        len(judgement.red),
        len(judgement.stray),
        len(judgement.unjudged),
        _checks(judgement),
    )


def _checks(judgement: Judgement) -> str:
    return f"{judgement.checks}" + (f" ({judgement.selection})" if judgement.selection not in ("", "sample") else "")


def _trouble(judgement: Judgement) -> str:
    if judgement.why:
        return judgement.why
    named = [*judgement.stray, *judgement.unjudged][:5]
    more = len(judgement.stray) + len(judgement.unjudged) - len(named)
    told = [f"{check.rpartition('::')[2]} ({judgement.reasons.get(check, '')[:120]})" for check in named]
    return "; ".join([*told, *([f"{more} more"] if more else [])]) or "no check noticed"


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines]
