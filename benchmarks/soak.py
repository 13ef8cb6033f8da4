"""How far the verdicts can be trusted: the default command again and again, on a quiet machine and on a stressed one.

    ./run soak                    30 quiet runs, and 10 under each kind of stress
    ./run soak 3                  3 quiet runs, and 1 under each kind of stress
    ./run soak 5 --provider kind --stress quiet

Each run is what ``./run conformance`` runs. Kubernetes is the same each time, so whatever differs between runs is the
suite's doing or the machine's: no run may end *broken*. Results are kept in reports/soak/ after each run; the same
command again goes on from there, ``--anew`` starts from nothing. Ctrl-C ends with the table of what there is.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from stress import STRESS, wait_quiet

from pvaffinity.report.model import Conformance, Outcome
from pvaffinity.report.staleness import percentile

_SHARE = 3  # a third as many runs under each kind of stress as on a quiet machine
_SUITE = ("-n", "2", "--dist", "worksteal", "-m", "not slow")
_BAD = (Outcome.FAILED, Outcome.XPASSED)


def one(kind: str, reports: Path, options: Sequence[str]) -> dict[str, Any]:
    """One run under one kind of stress, as a row of results."""
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True)
    command = [sys.executable, "-m", "pytest", "suites", *_SUITE, "--reports", str(reports), *options]
    if kind == "quiet":
        wait_quiet()
    begun = time.monotonic()
    with STRESS[kind](), (reports / "output.txt").open("wb") as out:
        code = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False).returncode
    return {"stress": kind, "code": code, "seconds": round(time.monotonic() - begun, 1), **_found(reports)}


def _found(reports: Path) -> dict[str, Any]:
    path = reports / "conformance.json"
    if not path.exists():
        return {"checks": 0, "broken": [], "not_judged": {}, "staleness": [], "slowest": []}
    clusters = Conformance.load(path).clusters
    tests = [(cluster, test) for cluster in clusters for b in cluster.behaviours for test in b.tests]
    asked = [test for _, test in tests if test.outcome not in (Outcome.UNSUPPORTED, Outcome.SKIPPED)]
    return {
        "checks": len(asked),
        "broken": [f"{test.id}: {test.reason.partition(chr(10))[0]}" for test in asked if test.outcome in _BAD],
        "not_judged": {
            test.id: test.reason.partition("\n")[0]
            for test in asked
            if test.outcome not in _BAD and not test.outcome.judged
        },
        "staleness": [seconds for cluster in clusters for seconds in cluster.staleness],
        "slowest": sorted(((test.seconds, test.id) for test in asked), reverse=True)[:3],
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """All runs so far, by kind of stress, as Markdown."""
    lines = [
        "| machine | runs | checks | broken | not judged | seconds a run: median, max | slowest check | "
        "scheduler went by an update within: p50, p99, max |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for kind in STRESS:
        runs = [row for row in rows if row["stress"] == kind]
        if not runs:
            continue
        checks = sum(row["checks"] for row in runs)
        broken, unjudged = (sum(len(row[what]) for row in runs) for what in ("broken", "not_judged"))
        seconds = [row["seconds"] for row in runs]
        late = [each for row in runs for each in row["staleness"]]
        marks = [percentile(late, 0.5), percentile(late, 0.99), max(late)] if late else []
        slow, which = max((tuple(each) for row in runs for each in row["slowest"]), default=(0.0, "-"))
        share = f" ({unjudged / checks:.2%})" if unjudged else ""
        lines.append(
            f"| {kind} | {len(runs)} | {checks} | {broken} | {unjudged}{share} | "
            f"{percentile(seconds, 0.5):.0f}, {max(seconds):.0f} | {slow:.0f} s `{which.partition('::')[2]}` | "
            f"{', '.join(f'{each * 1000:.0f} ms' for each in marks) or '-'} |"
        )
    why = Counter(reason for row in rows for reason in row["not_judged"].values())
    lines += ["", *(f"- not judged, {count} times: {reason}" for reason, count in why.most_common(10))] if why else []
    bad = [f"- BROKEN under {row['stress']}, run {row['run']}: {each}" for row in rows for each in row["broken"]]
    odd = [
        f"- run {row['run']} under {row['stress']} ended with exit code {row['code']} and {row['checks']} checks"
        for row in rows
        if row["code"] not in (0, 6) and not row["broken"]
    ]
    return "\n".join([*lines, *(["", *bad, *odd] if bad or odd else [])]) + "\n"


@click.command(help=__doc__.replace("\n    ", "\n\n\b\n    ", 1), context_settings={"ignore_unknown_options": True})
@click.argument("runs", type=click.IntRange(min=1), default=30)
@click.option("--stress", "kinds", type=click.Choice(tuple(STRESS)), multiple=True, help="Only this kind; repeatable.")
@click.option("--anew", is_flag=True, help="Forget the results of earlier runs.")
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def main(runs: int, kinds: tuple[str, ...], anew: bool, options: tuple[str, ...]) -> None:
    """See the module."""
    directory = Path("reports/soak")
    kept = directory / "runs.jsonl"
    if anew:
        shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()] if kept.exists() else []
    os.environ["PVAFFINITY_RUN"] = tempfile.mkdtemp(prefix="pvk-")  # no cluster of anybody else is paused
    wanted = [(kind, runs if kind == "quiet" else math.ceil(runs / _SHARE)) for kind in kinds or STRESS]
    try:
        for kind, count in wanted:
            done = sum(row["stress"] == kind for row in rows)
            for number in range(done + 1, count + 1):
                click.echo(f"soak: {kind}, run {number} of {count} (load {os.getloadavg()[0]:.1f})")
                row = {"run": number, **one(kind, directory / f"{kind.replace(' ', '-')}-{number}", options)}
                rows.append(row)
                with kept.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(row) + "\n")
                click.echo(
                    f"soak: exit code {row['code']} after {row['seconds']:.0f} s; {row['checks']} checks, "
                    f"{len(row['broken'])} broken, {len(row['not_judged'])} not judged"
                )
    except KeyboardInterrupt:
        click.echo("soak: interrupted; the same command goes on from here")
    finally:
        shutil.rmtree(os.environ["PVAFFINITY_RUN"], ignore_errors=True)
    text = table(rows)
    (directory / "soak.md").write_text(text, encoding="utf-8")
    click.echo(f"\n{text}\nsoak: written to {directory / 'soak.md'}")
    if any(row["broken"] or row["code"] not in (0, 6) for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
