"""Waits for what a program or a thread does in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def eventually(look: Callable[[], Any], seconds: float = 30) -> Any:
    """The first true answer of ``look``."""
    until = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < until, "the awaited never came"
        time.sleep(0.01)
    return seen
