"""``pvaffinity compare``: say where the same check ended differently on two providers."""

from __future__ import annotations

__all__ = ["compare"]

from pathlib import Path

import click

from pvaffinity import report as reports
from pvaffinity.cli.report import expand
from pvaffinity.errors import UserError


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--unshared", is_flag=True, help="list the checks that only one cluster was asked, and why; count the rest"
)
def compare(files: tuple[Path, ...], unshared: bool) -> None:
    """Compare conformance results of the same release and configuration, check by check.

    FILES are conformance.json files, or directories that hold some. Prints nothing and exits with 0 where every check
    that several clusters were asked ended the same; exits with 1 where not.

    \b
    pvaffinity compare local/conformance.json kind/conformance.json
    pvaffinity compare legs                          all legs of a CI matrix
    """  # noqa: D301  click reads the backspace that \b is
    found = reports.compare(reports.merge(expand(files, "conformance.json", "conformance result")))
    if not found.shared:
        raise UserError(
            "there is nothing to compare: no check was judged on two clusters of one release and configuration",
            "name results of two providers: pvaffinity compare local/conformance.json kind/conformance.json",
        )
    for difference in (*found.differences, *(found.unshared if unshared else ())):
        click.echo(difference)
    if unshared:
        click.echo(f"{found.shared} checks compared, {len(found.differences)} differ, {len(found.unshared)} unshared")
    if found.differences:
        raise SystemExit(1)
