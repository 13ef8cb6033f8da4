"""``pvaffinity doctor``: what this machine can run, and how to mend what is missing."""

from __future__ import annotations

__all__ = ["doctor"]

import dataclasses
import json
import shutil
import sys

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pvaffinity.doctor import Finding, examine, runnable

_COLOURS = {"ok": "green", "fail": "red", "note": "yellow"}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(as_json: bool) -> None:
    """Check this machine; exits with 0 if at least one provider can run here, else with 2.

    Everything is tried for real (namespaces are made, hosts are asked); nothing is changed.
    """
    findings = examine()
    blocked = runnable(findings)
    if as_json:
        data = {"findings": [dataclasses.asdict(f) for f in findings], "providers": blocked}
        click.echo(json.dumps(data, indent=1))
    else:
        _show(findings, blocked)
    if all(blocked.values()):
        sys.exit(2)


def _show(findings: list[Finding], blocked: dict[str, list[str]]) -> None:
    console = Console(width=max(80, shutil.get_terminal_size().columns), highlight=False)
    rows = [row for finding in findings for row in _rows(finding)]
    if console.is_terminal:
        table = Table(box=None, show_header=False, pad_edge=False)
        for _ in range(3):
            table.add_column(overflow="fold")
        for mark, name, text in rows:
            table.add_row(Text(mark, _COLOURS.get(mark, "")), Text(name), Text(text))
        console.print(table)
    else:  # a pipe or a file is as wide as need be: what is cut off cannot be pasted
        width = max(len(finding.name) for finding in findings)
        for mark, name, text in rows:
            click.echo(f"{mark:4}  {name:{width}}  {text}")
    click.echo()
    for provider, reasons in blocked.items():
        click.echo(f"provider {provider}: " + ("can run" if not reasons else f"cannot run ({', '.join(reasons)})"))


def _rows(finding: Finding) -> list[tuple[str, str, str]]:
    mark = "ok" if finding.ok else "fail" if finding.needed_by else "note"
    return [(mark, finding.name, finding.found), *([("", "", f"to fix: {finding.fix}")] if finding.fix else [])]
