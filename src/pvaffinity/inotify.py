"""How many inotify instances a user may still have: a kubelet takes several, and the usual limit is 128 in all."""

from __future__ import annotations

__all__ = ["free_instances", "limit", "remedy"]

import ctypes
import os
import resource
from pathlib import Path


def remedy() -> str:
    """The command that lifts the limit until the next boot: to 1024, or twice what it is."""
    instances = max(1024, 2 * (limit() or 0))
    return f"sudo sysctl -w fs.inotify.max_user_instances={instances} fs.inotify.max_user_watches=524288"


def limit() -> int | None:
    """The limit of every user, None where the kernel does not tell."""
    try:
        return int(Path("/proc/sys/fs/inotify/max_user_instances").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def free_instances(need: int) -> int:
    """How many instances this process's user can have now, at most ``need``; tried, since nothing tells."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < need + 200:  # the error would be the same
        return need
    libc = ctypes.CDLL(None)
    made: list[int] = []
    try:
        while len(made) < need and (descriptor := libc.inotify_init1(os.O_CLOEXEC)) >= 0:
            made.append(descriptor)
        return len(made)
    finally:
        for descriptor in made:
            os.close(descriptor)
