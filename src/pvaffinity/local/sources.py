"""What a source of binaries is, and how it says that it has none."""

from __future__ import annotations

__all__ = ["Source", "SourceError"]

from pathlib import Path
from typing import Protocol

from pvaffinity.local.bincache import Item
from pvaffinity.local.reporter import Reporter


class SourceError(Exception):
    """This source cannot provide the binary; the next one is asked.

    Args:
        why: half a sentence.
        fix: what would make this source work, half a sentence in the imperative.
        detail: more lines, such as where the log is.
        news: whether it is worth telling before the next source is asked.
    """

    def __init__(self, why: str, fix: str = "", *, detail: str = "", news: bool = True) -> None:
        super().__init__(why)
        self.fix = fix
        self.detail = detail
        self.news = news


class Source(Protocol):
    """Somewhere a binary can be had from."""

    def get(self, item: Item, directory: Path, reporter: Reporter) -> tuple[Path, str]:
        """Make the binary in ``directory``; returns it and a line that says where it came from.

        Raises:
            SourceError: not here.
            UserError: nowhere, until the user changes something: a full disk.
        """
