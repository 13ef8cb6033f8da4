"""The ``pvaffinity`` command: clusters to play with, binaries, a check of the machine, and reports.

Every subcommand is a module of this package with a click command of the same name; it is imported when it is called,
so that ``--help`` stays quick.
"""

from __future__ import annotations

__all__ = ["main"]

import importlib
import io
import sys
from collections.abc import Sequence

import click

from pvaffinity import __version__
from pvaffinity.errors import UserError

_COMMANDS = {
    "binaries": "List, fetch or build the Kubernetes binaries of the local provider.",
    "clean": "Remove what ended sessions left behind.",
    "compare": "Say where the same check ended differently on two providers.",
    "doctor": "Say what this machine can run and how to fix what is missing.",
    "mutants": "Break Kubernetes on purpose, and see that the suite notices.",
    "node-image": "Build node images for kind where nothing can be pulled.",
    "report": "Merge conformance results and write the HTML report.",
    "up": "Start a cluster to play with; Ctrl-C removes it.",
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        module = name.replace("-", "_")
        command: click.Command = getattr(importlib.import_module(f"pvaffinity.cli.{module}"), module)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pvaffinity")
def _group() -> None:
    """Real clusters, with and without the feature gate MutablePVNodeAffinity.

    \b
    pvaffinity doctor                    what can this machine run?
    pvaffinity up --config gate-on       a cluster in seconds, no root, no Docker
    pytest suites -n 2                   the conformance suite
    """  # noqa: D301  click reads the backspace that \b is


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; exits with 0, 2 for what the user must change, 130 after Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):  # names of files may hold any bytes: they are told as they are
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")
    try:
        _group.main(args=arguments, prog_name="pvaffinity", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except UserError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
    except OSError as error:  # whatever file or directory it is, the user named it or owns it
        where = f"{error.filename}: " if error.filename else ""
        fix = "make room or mend its permissions, or name another place"
        click.echo(f"error: {where}{error.strerror or error}\n  to fix: {fix}", err=True)
        sys.exit(2)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        sys.exit(130)
