"""``pvaffinity mutants``: break Kubernetes on purpose, and see that the suite notices."""

from __future__ import annotations

__all__ = ["mutants"]

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from pvaffinity.cli.progress import Shown, shown
from pvaffinity.errors import UserError
from pvaffinity.local.binaries import ensure
from pvaffinity.local.reporter import Reporter
from pvaffinity.mutants import table
from pvaffinity.mutants.building import Builder
from pvaffinity.mutants.catalogue import Mutant, chosen, load, sample
from pvaffinity.mutants.judging import Judgement, Verdict, judge
from pvaffinity.mutants.running import Run, run, selection
from pvaffinity.report import Conformance
from pvaffinity.versions import Release, load_versions


@click.command()
@click.option("--only", "names", multiple=True, metavar="NAME|COMPONENT", help="run these mutants; repeatable")
@click.option("--sample", "number", type=click.IntRange(1), metavar="N", help="run N, always the same, of every kind")
@click.option("--list", "listing", is_flag=True, help="name the mutants that would run, and exit")
@click.option("--resume", is_flag=True, help="keep the results of mutants that have not changed since they ran")
@click.option("--kubernetes-version", default="", metavar="VERSION", help="release to break  [default: the newest]")
@click.option(
    "--reports",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("reports/mutants"),
    show_default=True,
    help="where the table and each mutant's results go",
)
def mutants(
    names: tuple[str, ...], number: int | None, listing: bool, resume: bool, kubernetes_version: str, reports: Path
) -> None:
    """Break Kubernetes on purpose, and see that the suite notices.

    Every mutant is one change of one component, such as a scheduler that is not told of updated volumes; they stand in
    mutants/*.toml. Each is built with Go (about 15 seconds, once: it is kept in the cache), and the suite runs on a
    gate-off and a gate-on cluster with it (one to two minutes). A break must turn a check of its own promise red and no
    other; a harmless change, such as another wording, must turn nothing red.

    \b
    ./run mutants                              all of them, about an hour
    ./run mutants --sample 6                   six, one of every kind and one more
    ./run mutants --only kubelet --resume      what has not run yet of one component
    ./run mutants --only scheduler-no-requeue  one

    Exit code: 0 if every break was killed and every harmless change is green, 1 if not, 2 if a mutant's text does not
    fit the release. Run from a checkout. The table is reports/mutants/mutants.md; each mutant's results, evidence and
    pytest's output are beside it.
    """  # noqa: D301  click reads the backspace that \b is
    root = Path.cwd()
    if not (root / "suites").is_dir() or not (root / "mutants").is_dir():
        raise UserError("there are no suites and no mutants here", "run it in a checkout of the project: ./run mutants")
    wanted = chosen(load(root / "mutants"), names)
    wanted = sample(wanted, number) if number else wanted
    if listing:
        for mutant in wanted:
            breaks = "harmless" if mutant.harmless else "breaks " + ", ".join(mutant.breaks)
            click.echo(f"{mutant.name}: {mutant.component}, {breaks}: {mutant.does}")
        return
    release = load_versions().find(kubernetes_version) if kubernetes_version else load_versions().newest
    command = ["./run", "mutants", *(part for name in names for part in ("--only", name))]
    command += ["--sample", str(number)] if number else []
    command += ["--kubernetes-version", kubernetes_version] if kubernetes_version else []
    rows: list[tuple[Mutant, Judgement]] = []
    with shown() as show:
        session = _Session(release, reports.absolute(), root / "suites", show)
        session.prepare(wanted, resume)
        for place, mutant in enumerate(wanted, 1):
            rows.append((mutant, session.judge(mutant)))
            click.echo(_line(place, len(wanted), mutant, rows[-1][1]))
            table.write(rows, reports, release.version, shlex.join(command))
    click.echo(table.headline(rows))
    click.echo(f"table: {reports / 'mutants.md'}")
    if not all(judgement.verdict.fine for _, judgement in rows):
        raise SystemExit(1)


class _Session:
    """The mutants of one call."""

    def __init__(self, release: Release, reports: Path, suites: Path, show: Shown) -> None:
        self._release = release
        self._reports = reports
        self._suites = suites
        self._reporter = Reporter(show.progress, show.every)
        unaltered = ensure(release, progress=show.progress, every=show.every)
        self._builder = Builder(unaltered, self._reporter)
        self._kept: dict[Mutant, Run] = {}

    def prepare(self, wanted: Sequence[Mutant], resume: bool) -> None:
        """Find the results to keep, and see that the texts of all others fit the release."""
        for mutant in wanted if resume else ():
            kept = Run.load(self._reports / mutant.name)
            if kept and kept.of(mutant, self._release.version):
                self._kept[mutant] = kept
        self._builder.check(self._builder.lacking(mutant for mutant in wanted if mutant not in self._kept))

    def judge(self, mutant: Mutant) -> Judgement:
        """Build a mutant, run the suite on it, and judge what that found; what hinders it is the verdict's reason."""
        reports = self._reports / mutant.name
        try:
            done = self._kept.get(mutant) or self._run(mutant, reports)
            judgement = judge(mutant, Conformance.load(reports / "conformance.json"))
        except UserError as error:
            return Judgement(mutant.name, Verdict.UNJUDGED, why=error.what)
        return replace(judgement, seconds=done.seconds, selection=selection(mutant)[1])

    def _run(self, mutant: Mutant, reports: Path) -> Run:
        binaries = self._builder.build(mutant)
        return run(mutant, self._release.version, binaries, reports, self._suites, self._reporter)


def _line(place: int, count: int, mutant: Mutant, judgement: Judgement) -> str:
    """One row for the terminal."""
    counts = f"{len(judgement.red)} red, {len(judgement.stray)} stray, {len(judgement.unjudged)} not judged"
    of = f"of {judgement.checks} checks, {judgement.seconds:.0f} s"
    return f"[{place}/{count}] {judgement.verdict}: {mutant.name} ({judgement.why or f'{counts} {of}'})"
