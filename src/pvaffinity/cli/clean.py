"""``pvaffinity clean``: remove what ended sessions left behind."""

from __future__ import annotations

__all__ = ["clean"]

import click

from pvaffinity import leftovers


@click.command()
@click.option("--all", "everything", is_flag=True, help="Also clusters whose owner still runs.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
def clean(everything: bool, dry_run: bool) -> None:
    """Remove clusters that nobody owns any more: their processes and their directories.

    Nothing else is touched: no other user's clusters, no cached binaries, no kubeconfig of yours.
    """
    found = leftovers.find(everything=everything)
    for leftover in found:
        click.echo(f"{'would remove' if dry_run else 'removing'} {leftover}")
        if not dry_run:
            leftovers.remove(leftover)
    if not dry_run:
        leftovers.remove_ended_sessions()
    if not found:
        click.echo("nothing to clean")
    owned = [] if everything else [each for each in leftovers.find(everything=True) if each.owned]
    for leftover in owned:
        click.echo(f"kept {leftover} (--all removes it too)")
