"""Show the progress of long work: a spinner with a clock on a terminal, plain lines elsewhere."""

from __future__ import annotations

__all__ = ["Shown", "shown"]

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console

from pvaffinity.progress import Progress


@dataclass(frozen=True)
class Shown:
    """Where to send progress.

    Attributes:
        progress: takes one line.
        every: seconds between lines while the same work goes on.
    """

    progress: Progress
    every: float


@contextlib.contextmanager
def shown(console: Console | None = None) -> Iterator[Shown]:
    """Show progress on standard error for as long as the context lasts."""
    console = console or Console(stderr=True, highlight=False)
    started = time.monotonic()
    if not console.is_terminal:

        def line(text: str) -> None:
            console.print(f"{time.monotonic() - started:6.1f} s  {text}", markup=False, soft_wrap=True)

        yield Shown(line, 15.0)
        return
    with console.status("starting") as status:

        def spin(text: str) -> None:
            status.update(f"{text.replace('[', chr(92) + '[')} [dim]({time.monotonic() - started:.0f} s in all)[/dim]")
            if " done in " in text or "cannot" in text or "corrupt" in text:
                console.print(text, markup=False)

        yield Shown(spin, 1.0)
