"""The node's root file system: Debian packages unpacked by mmdebstrap into an archive, kept in the cache."""

from __future__ import annotations

__all__ = ["ROOTFS_BYTES", "ensure_rootfs", "rootfs_archive"]

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

from filelock import FileLock

from pvaffinity.errors import UserError
from pvaffinity.local.bincache import disk_full, host, writing
from pvaffinity.local.reporter import Reporter
from pvaffinity.local.tied import tied
from pvaffinity.nodeimage.recipe import Recipe
from pvaffinity.paths import cache_dir

ROOTFS_BYTES = 1_000_000_000
"""Disk it takes to make it: packages, what they unpack to, and the archive."""
_WITHOUT = ("doc", "info", "locale", "man")  # below /usr/share
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_STEPS = {
    "I: running apt-get update": "reading package lists",
    "I: downloading packages": "fetching packages",
    "I: extracting archives": "unpacking packages",
    "I: installing": "installing packages",
    "I: creating tarball": "writing the archive",
}


def rootfs_archive(recipe: Recipe) -> Path:
    """Where the cache has, or would have, the recipe's root file system."""
    contents = hashlib.sha256("\0".join([recipe.debian, *recipe.packages, *host()]).encode()).hexdigest()[:10]
    return cache_dir() / "rootfs" / f"{recipe.debian}-{contents}.tar"


def ensure_rootfs(recipe: Recipe, reporter: Reporter) -> Path:
    """The archive of the recipe's root file system, made now if the cache lacks it.

    Raises:
        UserError: mmdebstrap or Debian's keyring is missing, no mirror answers, the disk is full.
    """
    archive = rootfs_archive(recipe)
    directory = archive.parent
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        lock = FileLock(directory / f"{archive.name}.lock")
    with lock:
        if not archive.exists():
            _make(recipe, archive, reporter)
    return archive


def _make(recipe: Recipe, archive: Path, reporter: Reporter) -> None:
    tool = shutil.which("mmdebstrap")
    if not tool or not _KEYRING.exists():
        lacking = "mmdebstrap" if not tool else "Debian's archive keyring"
        raise UserError(
            f"{lacking} is not installed; it is needed to make a node image",
            "sudo apt-get install mmdebstrap debian-archive-keyring uidmap",
        )
    if shutil.disk_usage(archive.parent).free < ROOTFS_BYTES:
        raise disk_full(archive.parent, ROOTFS_BYTES)
    log, part = archive.with_suffix(".log"), archive.with_suffix(".part")
    _remove_abandoned(archive.parent)
    command = tied(
        tool,
        "--variant=essential",
        "--format=tar",
        f"--keyring={_KEYRING}",
        f"--include={','.join(recipe.packages)}",
        '--aptopt=APT::Install-Recommends "false"',
        "--dpkgopt=force-unsafe-io",
        *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _WITHOUT),
        recipe.debian,
        str(part),
        *os.environ.get("PVAFFINITY_DEBIAN_MIRROR", "").split(),
    )
    reporter.start(f"Debian {recipe.debian}")
    try:
        if _run(command, archive.parent, log, reporter):
            raise _failure(log)
        part.replace(archive)
    finally:
        _remove_abandoned(archive.parent)
    reporter.say(f"done in {reporter.elapsed:.0f} s")


def _remove_abandoned(directory: Path) -> None:
    """Remove what a maker left that was interrupted, or killed; called with the lock held."""
    left = [*directory.glob("mmdebstrap.*"), *directory.glob("*.part")]
    if left:  # not across mounts: mmdebstrap may have mounted this machine's /dev there
        subprocess.run(["rm", "-rf", "--one-file-system", "--", *left], stderr=subprocess.DEVNULL, check=False)


def _run(command: list[str], directory: Path, log: Path, reporter: Reporter) -> int:
    # TMPDIR: what is unpacked is large, and /tmp may be a small memory file system.
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "0", "TMPDIR": str(directory), "LC_ALL": "C"}
    with writing(log), log.open("w", encoding="utf-8") as messages:
        process = subprocess.Popen(
            command, stdout=messages, stderr=messages, env=environment, stdin=subprocess.DEVNULL, process_group=0
        )
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(min(1.0, reporter.every))
            reporter.tick(_step(log.read_text(errors="replace", encoding="utf-8")))
    except BaseException:
        for number in (signal.SIGINT, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
                break
        raise


def _step(text: str) -> str:
    for line in reversed(text.splitlines()):
        for start, step in _STEPS.items():
            if line.startswith(start):
                return step
    return "starting"


def _failure(log: Path) -> UserError:
    text = log.read_text(errors="replace", encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith(("E:", "Err:"))] or text.splitlines()[-1:]
    why = lines[0] if lines else "no message"
    if "No space left on device" in text:
        return disk_full(log.parent, ROOTFS_BYTES)
    if "newuidmap" in text or "unshare" in why:
        fix = "sudo apt-get install uidmap, or run it as root"
    else:
        fix = "make a Debian mirror reachable (PVAFFINITY_DEBIAN_MIRROR names another), or see the log"
    return UserError(f"the Debian packages of the node image could not be installed: {why}", fix, detail=f"log: {log}")
