"""The table of all mutants: what each breaks, what noticed, and what the suite cannot see; for people and as JSON."""

from __future__ import annotations

__all__ = ["headline", "markdown", "write"]

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pvaffinity.mutants.catalogue import SAMPLE, Mutant
from pvaffinity.mutants.judging import Judgement, Verdict
from pvaffinity.paths import write_whole

Rows = Sequence[tuple[Mutant, Judgement]]
_NAMED = 3  # tests that noticed, in one row
_INTRODUCTION = """\
# What the suite notices, and what it does not

Made by `{command}`, on Kubernetes {version}. Each mutant is Kubernetes with one text in one file replaced
(`mutants/*.toml`); the suite ran on a gate-off and a gate-on cluster of the local provider with that one binary
altered.

- **killed**: a check of the promise that it breaks is red. **green**: a harmless change, and nothing is.
- *red*: checks of that promise that failed. *stray*: failed checks of other promises. *not judged*: checks that were to
  run and said nothing. A stray or unjudged check without a reason in the data makes the mutant a **misfire**.
- *checks*: how many said something. All run but the slow one, the race sweep, and most of the many alike: of the
  immutability matrix a sample of changes, and where the altered component is not the API server, one change, and a
  sample of RBAC. Checks that start components anew run for harmless changes, and where it is their promise that is
  broken. Where *all* is added, everything but the first two runs; where *-k* is, what it chooses; *without* names what
  was left out because it would wait a minute to say the same.

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
    parts = [_INTRODUCTION.format(command=command, version=version, headline=headline(rows))]
    breaks = [_row(mutant, judgement) for mutant, judgement in rows if not mutant.harmless]
    harmless = [_row(mutant, judgement) for mutant, judgement in rows if mutant.harmless]
    head = ("mutant", "what it does", "promise", "verdict", "noticed by", "red", "stray", "not judged", "checks")
    parts += ["## Breaks\n", *_table(head, breaks)] if breaks else []
    shown = (0, 1, 3, 5, 6, 7, 8)  # of the same columns
    fewer = [[row[n] for n in shown] for row in harmless]
    parts += ["\n## Harmless changes\n", *_table([head[n] for n in shown], fewer)] if harmless else []
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
    killers = [f"`{name}`" + f" ({count})" * (count > 1) for name, count in judgement.killers.items()]
    named = ", ".join([*killers[:_NAMED], *([f"{len(killers) - _NAMED} more"] if killers[_NAMED:] else [])])
    return (
        mutant.name,
        f"{mutant.component}: {mutant.does}",
        ", ".join(mutant.breaks),
        f"**{judgement.verdict}**",
        named,
        len(judgement.red),
        len(judgement.stray),
        len(judgement.unjudged),
        _checks(judgement),
    )


def _checks(judgement: Judgement) -> str:
    return f"{judgement.checks}" + (f" ({judgement.selection})" if judgement.selection not in ("", SAMPLE) else "")


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
