"""Waits for what a program or a thread does in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psutil


def eventually(look: Callable[[], Any], seconds: float = 60) -> Any:
    """The first true answer of ``look``."""
    until = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < until, "the awaited never came"
        time.sleep(0.01)
    return seen


def ended(pid: int) -> bool:
    """Whether a process has ended, also if nobody has asked yet how."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
