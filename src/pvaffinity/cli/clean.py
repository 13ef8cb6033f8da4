"""``pvaffinity clean``: remove what ended sessions left behind."""

from __future__ import annotations

__all__ = ["clean"]

import click

from pvaffinity import leftovers
from pvaffinity.errors import UserError
from pvaffinity.local.owner import remove_tree


@click.command()
@click.option("--all", "everything", is_flag=True, help="Also clusters whose owner still runs, and new logs.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
def clean(everything: bool, dry_run: bool) -> None:
    """Remove clusters that nobody owns any more: their processes and their directories.

    Logs of clusters that could not be created go when they are a week old.

    Nothing else is touched: no other user's clusters, no cached binaries, no kubeconfig of yours. One that cannot be
    removed does not keep the others; it is told at the end, and the exit code is 2.
    """
    found = leftovers.find(everything=everything)
    failed: dict[str, UserError] = {}
    for leftover in found:
        click.echo(f"{'would remove' if dry_run else 'removing'} {leftover}")
        if dry_run:
            continue
        try:
            leftovers.remove(leftover)
        except UserError as error:
            failed[leftover.directory.name] = error
    logs = leftovers.old_failures(everything=everything)
    for path in logs:
        click.echo(f"{'would remove' if dry_run else 'removing'} logs of {path.name}, which could not be created")
        if not dry_run:
            remove_tree(path)
    if not dry_run:
        leftovers.remove_ended_sessions()
    if not found and not logs:
        click.echo("nothing to clean")
    owned = [] if everything else [each for each in leftovers.find(everything=True) if each.owned]
    for leftover in owned:
        click.echo(f"kept {leftover} (--all removes it too)")
    if failed:
        raise leftovers.not_removed(failed)
