"""Whether this machine can run a local cluster, tried for real where trying is cheap."""

from __future__ import annotations

__all__ = ["check_machine", "check_namespaces", "namespaces_remedy", "try_namespaces"]

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil

from pvaffinity import inotify, room
from pvaffinity.errors import RoomError, UserError
from pvaffinity.paths import run_dir
from pvaffinity.room import Room

MEMORY_BASE, MEMORY_NODE = 600 << 20, 60 << 20
"""Bytes of a control plane and of each node, as measured in benchmarks/."""
INOTIFY_BASE, INOTIFY_NODE = 7, 5
"""inotify instances of a control plane and of each kubelet, counted in /proc/PID/fd of a running cluster."""
DISK = 300 << 20
"""Bytes a cluster writes at first: etcd's log is 64 MB at once."""


def try_namespaces() -> tuple[str, int]:
    """Make a cluster's namespaces in a process that ends at once; ``("", 0)``, or the step refused and its errno."""
    command = [sys.executable, "-m", "pvaffinity.local.namespaces"]
    for extra in ([], ["--no-pid"]):  # where /proc is masked, a cluster runs without a process namespace
        done = subprocess.run(
            [*command, *extra], capture_output=True, encoding="utf-8", errors="replace", timeout=30, check=False
        )
        answer = json.loads(done.stdout or '{"step": "start a process", "errno": 1}')
        if not answer:
            return "", 0
    return answer["step"], answer["errno"]


def namespaces_remedy(number: int) -> str:
    """What to do about a refusal, by what this machine shows."""

    def setting(name: str) -> str:
        try:
            return Path("/proc/sys", name).read_text(encoding="utf-8").strip()
        except OSError:
            return ""

    for which in ("user", "net", "mnt", "pid"):
        if setting(f"user/max_{which}_namespaces") == "0":
            return f"sudo sysctl -w user.max_{which}_namespaces=15000"
    if number == errno.ENOSPC:
        return (
            "sudo sysctl -w user.max_user_namespaces=15000 user.max_net_namespaces=15000 user.max_mnt_namespaces=15000"
        )
    if setting("kernel/unprivileged_userns_clone") == "0":
        return "sudo sysctl -w kernel.unprivileged_userns_clone=1"
    if setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return "start the container with --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
    return "allow user namespaces on this machine, or use --provider kind"


def check_namespaces() -> None:
    """See that a cluster can have namespaces of its own.

    Raises:
        UserError: they are refused; says what to do.
    """
    step, number = try_namespaces()
    if step:
        raise UserError(f"this machine does not let us {step}: {os.strerror(number)}", namespaces_remedy(number))


def check_machine(nodes: int) -> None:
    """Fail early, and reserve what the cluster will take (see :mod:`pvaffinity.room`).

    Raises:
        UserError: user namespaces are refused, or memory or disk is short.
    """
    check_namespaces()
    need = Room(MEMORY_BASE + nodes * MEMORY_NODE, INOTIFY_BASE + nodes * INOTIFY_NODE)
    room.reserve(need, lambda others: _no_inotify(need, others, nodes) or _no_memory(need, others, nodes))
    where = run_dir()
    free = shutil.disk_usage(where).free
    if free < DISK:
        raise UserError(
            f"{free >> 20} MB are free in {where}, a cluster needs about {DISK >> 20} MB",
            "make room there, or set PVAFFINITY_RUN to another directory",
        )


def _no_inotify(need: Room, others: Room, nodes: int) -> RoomError | None:
    had = inotify.free_instances(need.instances + others.instances) - others.instances
    if had >= need.instances:
        return None
    return RoomError(
        f"{max(had, 0)} inotify instances are free for this user, a cluster of {nodes} nodes takes about"
        f" {need.instances} (fs.inotify.max_user_instances is {inotify.limit()})",
        f"end another cluster, or: {inotify.remedy()}",
    )


def _no_memory(need: Room, others: Room, nodes: int) -> RoomError | None:
    free = psutil.virtual_memory().available - others.memory
    if free >= need.memory:
        return None
    return RoomError(
        f"{max(free, 0) >> 20} MB of memory are free, a cluster of {nodes} nodes needs about {need.memory >> 20} MB",
        "end other programs, or take a cluster configuration with fewer nodes",
    )
