"""How long work tells what it is doing: one short line at a time, to whoever wants to show it."""

from __future__ import annotations

__all__ = ["Progress", "quiet"]

from collections.abc import Callable

Progress = Callable[[str], None]
"""Told one short line whenever a long piece of work moves on."""


def quiet(line: str) -> None:
    """A :data:`Progress` that says nothing."""
