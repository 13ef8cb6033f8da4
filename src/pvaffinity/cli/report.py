"""``pvaffinity report``: merge results of several runs into one site, or judge saved races again."""

from __future__ import annotations

__all__ = ["expand", "report"]

from pathlib import Path

import click

from pvaffinity import report as reports
from pvaffinity.errors import UserError, did_you_mean
from pvaffinity.providers import PROVIDERS
from pvaffinity.races import Record
from pvaffinity.report.texts import headline
from pvaffinity.versions import load_versions

_REPORTS = Path("reports")
"""Where the suite writes."""


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="directory  [default: reports without FILES, else merged]",
)
@click.option(
    "--allure",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="directory with Allure results at any depth to make a report of as well; repeatable",
)
@click.option("--check", is_flag=True, help="exit with 1 unless every behaviour holds, or every race does")
@click.option("--expect", metavar="PROVIDER,…", help="name what is missing of these providers' legs, one per release")
@click.option(
    "--history", metavar="ADDRESS|DIR", help="of the site so far: make a site of this run and all earlier ones"
)
@click.option("--label", default="", help="with --history: what was tested, such as a commit")
@click.option("--link", default="", help="with --history: address of the CI run")
@click.option("--rejudge", is_flag=True, help="FILES are saved races (.jsonl): judge them by the rules of this version")
def report(
    files: tuple[Path, ...],
    output: Path | None,
    allure: tuple[Path, ...],
    check: bool,
    expect: str | None,
    history: str | None,
    label: str,
    link: str,
    rejudge: bool,
) -> None:
    """Merge conformance results and write the HTML report.

    FILES are conformance.json files, or directories that hold some; with --rejudge, race*.jsonl files or directories.
    Without FILES it is what the suite has written into reports/.

    \b
    pvaffinity report                                the page, the table and the badge of reports/ anew
    pvaffinity report legs --allure legs -o site     one report for the legs of a CI matrix
    pvaffinity report legs -o site --history URL     the same, added to what is published at URL
    pvaffinity report --rejudge                      verdicts of saved races, worked out again
    """  # noqa: D301  click reads the backspace that \b is
    if history is None and (label or link):
        raise UserError(
            f"{'--label' if label else '--link'} is for a site of many runs", "add --history, or leave it out"
        )
    if rejudge:
        if output or allure or expect or history is not None:
            what = "--rejudge writes nothing"
            raise UserError(what, "leave out --output, --allure, --expect and --history, or --rejudge")
        _rejudge(expand(files or (_REPORTS,), "*.jsonl", "saved race"), check)
        return
    target = output or (Path("merged") if files else _REPORTS)
    legs = [(name, release.minor) for name in _expected(expect) for release in load_versions().releases]
    sources = files or (_REPORTS / "conformance.json",)  # of other runs there may be some below
    result = reports.merge(expand(sources, "conformance.json", "conformance result"), expected=legs)
    details = sorted({path.parent for each in allure for path in each.rglob("*-result.json")})
    if history is not None:
        before = reports.earlier(history)
        if not before.runs:
            click.echo(f"there is no history at {history} yet: this run begins one")
        page = reports.publish(result, target, before, allure=details, label=label, link=link, progress=click.echo)
    else:
        made = reports.allure_html(details, target / "allure", progress=click.echo) if allure else None
        page = reports.write(result, target, allure=made)
    click.echo(f"{headline(result)}\n{page}")
    if check and not result.holds:
        raise SystemExit(1)


def _expected(providers: str | None) -> list[str]:
    """The providers of which every release's leg is expected."""
    if providers is None:
        return []
    names = [name.strip() for name in providers.split(",")]
    for name in names:
        if name not in PROVIDERS:
            raise UserError(
                f"--expect: no provider {name!r}{did_you_mean(name, PROVIDERS)}",
                f"name one or several of {', '.join(PROVIDERS)}, with a comma between them",
            )
    return names


def _rejudge(files: list[Path], check: bool) -> None:
    summaries = [(path, Record.load(path).summary()) for path in files]
    for path, summary in summaries:
        click.echo(f"{path}: {'holds' if summary.holds else 'does not hold'}\n{summary}\n")
    if check and not all(summary.holds for _, summary in summaries):
        raise SystemExit(1)


def expand(paths: tuple[Path, ...], pattern: str, what: str) -> list[Path]:
    """Files as they are, directories as what they hold.

    Raises:
        UserError: there is nothing at all, or a directory holds none.
    """
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise UserError(f"there is no {path}", f"run the suite first, or name a {what}: pytest suites")
        below = sorted(path.rglob(pattern)) if path.is_dir() else [path]
        if not below:
            raise UserError(f"there is no {what} ({pattern}) below {path}", "run the suite first: pytest suites")
        found += below
    if not found:
        raise UserError(f"no {what} was named", f"name files or directories that hold {pattern}")
    return list(dict.fromkeys(found))
