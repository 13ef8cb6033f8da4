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
    table = Table(box=None, show_header=False, pad_edge=False)
    for finding in findings:
        vital = not finding.ok and finding.needed_by
        mark = Text("ok" if finding.ok else "fail" if vital else "note")
        mark.stylize("green" if finding.ok else "red" if vital else "yellow")
        table.add_row(mark, Text(finding.name), Text(finding.found))
        if finding.fix:
            table.add_row("", "", Text(f"to fix: {finding.fix}"))
    console.print(table)
    console.print()
    for provider, reasons in blocked.items():
        console.print(
            Text(f"provider {provider}: " + ("can run" if not reasons else f"cannot run ({', '.join(reasons)})"))
        )
