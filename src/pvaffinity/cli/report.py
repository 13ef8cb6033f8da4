"""``pvaffinity report``: merge results of several runs into one site, or judge saved races again."""

from __future__ import annotations

__all__ = ["report"]

from pathlib import Path

import click

from pvaffinity import report as reports
from pvaffinity.errors import UserError
from pvaffinity.races import Record
from pvaffinity.report.texts import headline


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default=Path("report"), show_default=True, help="directory"
)
@click.option(
    "--allure", type=click.Path(path_type=Path), help="directory of Allure results to make a report of as well"
)
@click.option("--check", is_flag=True, help="exit with 1 unless every behaviour holds, or every race does")
@click.option("--rejudge", is_flag=True, help="FILES are saved races (.jsonl): judge them by the rules of this version")
def report(files: tuple[Path, ...], output: Path, allure: Path | None, check: bool, rejudge: bool) -> None:
    """Merge conformance results and write the HTML report.

    FILES are conformance.json files, or directories that hold some; with --rejudge, race*.jsonl files or directories.

    \b
    pvaffinity report report/                        the page, the table and the badge anew
    pvaffinity report leg-*/ -o site --check         one site for the legs of a CI matrix
    pvaffinity report --rejudge report/races         verdicts of saved races, worked out again
    """  # noqa: D301  click reads the backspace that \b is
    if rejudge:
        _rejudge(_expand(files, "*.jsonl", "saved race"), check)
        return
    result = reports.merge(_expand(files or (output,), "conformance.json", "conformance result"))
    made = reports.allure_html(allure, output / "allure", progress=click.echo) if allure else None
    page = reports.write(result, output, allure=made)
    click.echo(f"{headline(result)}\n{page}")
    if check and not result.holds:
        raise SystemExit(1)


def _rejudge(files: list[Path], check: bool) -> None:
    summaries = [(path, Record.load(path).summary()) for path in files]
    for path, summary in summaries:
        click.echo(f"{path}: {'holds' if summary.holds else 'does not hold'}\n{summary}\n")
    if check and not all(summary.holds for _, summary in summaries):
        raise SystemExit(1)


def _expand(paths: tuple[Path, ...], pattern: str, what: str) -> list[Path]:
    """Files as they are, directories as what they hold.

    Raises:
        UserError: there is nothing at all, or a directory holds none.
    """
    found: list[Path] = []
    for path in paths:
        below = sorted(path.rglob(pattern)) if path.is_dir() else [path]
        if not below:
            raise UserError(f"there is no {what} ({pattern}) below {path}", "run the suite first: pytest suites")
        found += below
    if not found:
        raise UserError(f"no {what} was named", f"name files or directories that hold {pattern}")
    return list(dict.fromkeys(found))
