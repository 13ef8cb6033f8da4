"""Where a node image is put together: a container and a directory, both gone afterwards, and the room for them."""

from __future__ import annotations

__all__ = [
    "CACHE_BYTES",
    "check_room",
    "container_of",
    "full_disk",
    "place",
    "remove_abandoned",
    "scratch",
    "unfinished",
]

import contextlib
import functools
import hashlib
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pvaffinity.engine import Engine, EngineError
from pvaffinity.errors import UserError
from pvaffinity.local.bincache import writing
from pvaffinity.local.owner import Owner
from pvaffinity.nodeimage.recipe import REPOSITORY, Recipe
from pvaffinity.nodeimage.rootfs import ROOTFS_BYTES, rootfs_archive
from pvaffinity.paths import cache_dir

_NAME = "pvaffinity-build"
"""Containers in which an image is put together are named ``pvaffinity-build-PLACE-PID-START-…`` after the process that
does it, see :func:`place`. Not a label: the image would hand it down to every node."""
_NEED_ENGINE = 3_000_000_000  # bytes: base, container and image, measured 2.2 GB
CACHE_BYTES = 1_500_000_000
"""Disk it takes in the cache: two archives."""
_PRUNE = "{0} image prune; {0} volume prune"


@contextlib.contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """A directory for archives; gone afterwards, as are those of builders that were killed."""
    for left in parent.glob(".build-*-*-*"):
        pid, start = left.name.split("-")[1:3]
        if not Owner(int(pid), int(start)).alive:
            shutil.rmtree(left, ignore_errors=True)
    me = Owner.of(os.getpid())
    with writing(parent):
        path = Path(tempfile.mkdtemp(prefix=f".build-{me.pid}-{me.start}-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def container_of(engine: Engine, image: str) -> Iterator[str]:
    """A running container of the base image; gone afterwards, as are those of builders that were killed."""
    remove_abandoned(engine)
    me = Owner.of(os.getpid())
    name = f"{_NAME}-{place()}-{me.pid}-{me.start}-{secrets.token_hex(4)}"
    try:
        # It ends, and is removed, by itself after an hour: even if nobody is left to remove it. The image gets its stop
        # signal (systemd's) from here, since commit cannot set one.
        engine.run(
            "run", "--detach", "--rm", "--privileged", "--network=none", f"--name={name}",
            "--tmpfs=/tmp", "--tmpfs=/run", "--stop-signal=SIGRTMIN+3", image, "sleep", "3600",
            timeout=120, patient=True,
        )  # fmt: skip
        yield name
    finally:
        for command in (["rm", "--force", "--volumes", name], ["image", "rm", "--force", unfinished(name)]):
            with contextlib.suppress(EngineError):
                engine.run(*command)


@functools.cache
def place() -> str:
    """Where this process's number means something: one boot of one machine, and one PID namespace of it.

    An engine may be used from several, and what is another's must be left alone.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8")
    return hashlib.sha256(f"{boot}{Path('/proc/self/ns/pid').readlink()}".encode()).hexdigest()[:12]


def unfinished(container: str) -> str:
    """What an image is named until it is whole, after the container it is made from."""
    return f"{REPOSITORY}-unfinished:{container}"


def remove_abandoned(engine: Engine) -> int:
    """Remove containers, and unfinished images, of builds in this place whose process is gone; returns how many.

    Containers of another place, such as before a reboot, end by themselves within an hour.
    """
    containers = engine.run("ps", "--all", "--filter", f"name={_NAME}-", "--format", "{{.Names}}").split()
    images = engine.run("image", "ls", "--format", "{{.Repository}}:{{.Tag}}").split()
    count = 0
    for name in [*containers, *images]:
        match = re.fullmatch(rf"(.*-unfinished:)?{_NAME}-{place()}-(\d+)-(\d+)-[0-9a-f]+", name)
        if match and not Owner(int(match[2]), int(match[3])).alive:
            with contextlib.suppress(EngineError):
                engine.run(*(["image", "rm", "--force"] if match[1] else ["rm", "--force", "--volumes"]), name)
                count += 1
    return count


def check_room(engine: Engine, recipe: Recipe) -> None:
    """Refuse a disk that is too full before minutes of work.

    Raises:
        UserError: names the disk, what is free and what is needed.
    """
    cache, theirs = CACHE_BYTES, _NEED_ENGINE
    if not rootfs_archive(recipe).exists():
        cache += ROOTFS_BYTES
    root = engine.data_root()
    shared = root is not None and root.stat().st_dev == cache_dir().stat().st_dev
    free = shutil.disk_usage(cache_dir()).free
    if free < cache + theirs * shared:
        prune = f"{_PRUNE.format(engine.name)}; " * shared
        what = f"the cache ({cache_dir()})" + f" and {engine.name}'s images ({root})" * shared
        raise UserError(
            f"{free / 1e9:.1f} GB are free on the disk of {what}; a node image takes"
            f" {(cache + theirs * shared) / 1e9:.1f} GB there while it is made",
            f"free some ({prune}go clean -cache), or set PVAFFINITY_CACHE to another disk",
        )
    if root and not shared and (free := shutil.disk_usage(root).free) < theirs:
        raise UserError(
            f"{free / 1e9:.1f} GB are free on the disk of {engine.name}'s images ({root}); a node image takes"
            f" {theirs / 1e9:.1f} GB there while it is made",
            f"free some: {_PRUNE.format(engine.name)}",
        )


def full_disk(error: EngineError, engine: Engine) -> UserError | None:
    """What to tell where the engine's disk is full; None where that is not it."""
    full = next((line for line in error.messages.splitlines() if "no space left on device" in line.lower()), "")
    if not full:
        return None
    root = engine.data_root()
    return UserError(
        f"{engine.name} has no space left on its disk{f' ({root})' if root else ''}; a node image takes"
        f" {_NEED_ENGINE / 1e9:.1f} GB there while it is made",
        f"free some: {_PRUNE.format(engine.name)}",
        detail=full.strip(),
    )
