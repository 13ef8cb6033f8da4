"""The cache of binaries: whole files only, each with its sha256 in a manifest, one maker at a time.

Layout below :func:`pvaffinity.paths.cache_dir`::

    binaries/1.37.2-linux-amd64/kubelet …  manifest.json
    binaries/etcd-3.6.16-linux-amd64/etcd  manifest.json     shared by all Kubernetes versions
    binaries/.locks  .work  .parts  logs                      see :meth:`Cache.making`

A file counts only if the manifest names it: it is renamed into place complete and synced, then entered.
"""

from __future__ import annotations

__all__ = ["Cache", "Found", "Item", "host", "writing"]

import contextlib
import errno
import hashlib
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from pvaffinity.errors import UserError
from pvaffinity.local.reporter import Reporter
from pvaffinity.paths import cache_dir

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_FULL = (errno.ENOSPC, errno.EDQUOT)


def host() -> tuple[str, str]:
    """Operating system and architecture in Go's words: ``("linux", "amd64")``."""
    machine = platform.machine()
    return sys.platform, _ARCHITECTURES.get(machine, machine)


@dataclass(frozen=True)
class Item:
    """One binary that is wanted: ``Item("kubernetes", "1.37.2", "kubelet")``."""

    product: str
    version: str
    name: str

    @property
    def entry(self) -> str:
        """The directory of the cache it belongs in."""
        return "-".join([self.product] * (self.product != "kubernetes") + [self.version, *host()])

    @property
    def key(self) -> str:
        """Unique over the cache; names locks, unfinished files and logs."""
        return f"{self.entry}-{self.name}"

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True)
class Found:
    """What the cache has for an item.

    Attributes:
        path: where it is or would be.
        state: ``ok``, ``missing`` or ``corrupt``.
        why: what is wrong with it, if corrupt.
        source: where it came from.
        size: bytes.
    """

    path: Path
    state: str
    why: str = ""
    source: str = ""
    size: int = 0


@contextlib.contextmanager
def writing(path: Path, need: int = 0) -> Iterator[None]:
    """Turn what a file system refuses into a :class:`UserError` about ``path``, where ``need`` bytes are needed."""
    try:
        yield
    except Timeout:
        raise
    except OSError as error:
        if error.errno in _FULL:
            raise disk_full(path, need) from error
        raise UserError(
            f"the cache cannot be written: {error.strerror or error} ({error.filename or path})",
            "set PVAFFINITY_CACHE to a directory you may write",
        ) from error


def disk_full(path: Path, need: int = 0, detail: str = "") -> UserError:
    """The error for a file system that has no room; ``need`` in bytes, if known.

    What Go tells (``detail``) may be about the disk of one of its own caches.
    """
    place = f"the disk of {path}" if not detail else "the disk of the cache, or of Go's caches"
    wanted = f"; {need / 1e9:.1f} GB are needed" if need else ""
    return UserError(
        f"no space left on {place}{wanted}",
        "free some (go clean -cache empties Go's build cache), or set PVAFFINITY_CACHE or GOCACHE to another disk",
        detail=detail,
    )


def sha256_of(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Cache:
    """The cache below ``root`` (default: ``binaries`` in the user's cache directory)."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or cache_dir() / "binaries"

    def find(self, item: Item, *, verify: bool = False) -> Found:
        """Look an item up; never writes unless a time stamp changed.

        Size and modification time must be the manifest's; the sha256 is computed if they are not, or for ``verify``.
        """
        path = self.root / item.entry / item.name
        try:
            entry = self._manifest(item)[item.name]
            stat = path.stat()
        except (FileNotFoundError, NotADirectoryError, KeyError):
            return Found(path, "missing")
        except OSError as error:
            return Found(path, "corrupt", str(error))
        found = Found(path, "ok", source=entry["source"], size=stat.st_size)
        touched = stat.st_mtime_ns != entry["mtime_ns"]
        if stat.st_size != entry["size"]:
            return Found(path, "corrupt", f"{stat.st_size} bytes instead of {entry['size']}")
        if (touched or verify) and sha256_of(path) != entry["sha256"]:
            return Found(path, "corrupt", "its sha256 is not the one it came with")
        if touched:
            with contextlib.suppress(OSError):
                self._enter(item, {**entry, "mtime_ns": stat.st_mtime_ns})
        return found if os.access(path, os.X_OK) else Found(path, "corrupt", "it is not executable")

    @contextlib.contextmanager
    def making(self, item: Item, reporter: Reporter) -> Iterator[Path]:
        """Be the only process that makes this item; yields an empty directory, removed afterwards.

        Whoever waits says so. A maker that was killed leaves its directory, which the next one removes: only the
        holder of the lock touches it.

        Raises:
            UserError: the cache cannot be written.
        """
        with writing(self.root):
            locks, work = self._locks(), self.root / ".work" / item.key
            lock, holder = FileLock(locks / f"{item.key}.lock"), locks / f"{item.key}.pid"
        while not lock.is_locked:
            try:
                with writing(self.root):
                    lock.acquire(timeout=min(reporter.every, 1.0), poll_interval=0.2)
            except Timeout:
                with contextlib.suppress(OSError):
                    reporter.tick(f"waiting for process {holder.read_text(encoding='utf-8')}, which is getting it")
        try:
            with writing(self.root):
                holder.write_text(str(os.getpid()), encoding="utf-8")
                shutil.rmtree(work, ignore_errors=True)
                work.mkdir(parents=True, exist_ok=True)
                mine = Path(tempfile.mkdtemp(dir=work))
            yield mine
        finally:
            shutil.rmtree(work, ignore_errors=True)
            lock.release()

    def publish(self, item: Item, file: Path, source: str) -> Path:
        """Move a finished file, of the same file system, into the cache. Call with :meth:`making` held."""
        target = self.root / item.entry / item.name
        with writing(target):
            target.parent.mkdir(exist_ok=True)
            file.chmod(0o755)
            _sync(file)
            digest, stat = sha256_of(file), file.stat()
            file.replace(target)
            _sync(target.parent)
            self._enter(item, {"sha256": digest, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "source": source})
        return target

    def forget(self, items: Iterable[Item]) -> None:
        """Treat items as missing from now on."""
        for item in items:
            with writing(self.root), FileLock(self._locks() / f"{item.entry}.lock"):
                self._write(item, {name: e for name, e in self._manifest(item).items() if name != item.name})

    def _locks(self) -> Path:
        locks = self.root / ".locks"
        locks.mkdir(parents=True, exist_ok=True)
        return locks

    def _manifest(self, item: Item) -> dict[str, Any]:
        try:
            data = json.loads((self.root / item.entry / "manifest.json").read_text(encoding="utf-8"))
            return {name: e for name, e in data.items() if {"sha256", "size", "mtime_ns", "source"} <= e.keys()}
        except (ValueError, AttributeError, FileNotFoundError, NotADirectoryError):
            return {}

    def _enter(self, item: Item, entry: dict[str, Any]) -> None:
        with FileLock(self._locks() / f"{item.entry}.lock"):
            self._write(item, {**self._manifest(item), item.name: entry})

    def _write(self, item: Item, entries: dict[str, Any]) -> None:
        manifest = self.root / item.entry / "manifest.json"
        if not manifest.parent.is_dir():
            return
        temporary = manifest.with_suffix(".tmp")
        temporary.write_text(json.dumps(entries, indent=1, sort_keys=True), encoding="utf-8")
        _sync(temporary)
        temporary.replace(manifest)
        _sync(manifest.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
