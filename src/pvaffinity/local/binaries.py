"""The Kubernetes binaries of the local provider: from a named directory, the cache, a download, or a Go build."""

from __future__ import annotations

__all__ = ["COMPONENTS", "Binaries", "ensure", "fetch", "items"]

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pvaffinity.errors import UserError
from pvaffinity.local.bincache import Cache, Found, Item, host
from pvaffinity.local.download import Downloads
from pvaffinity.local.gobuild import GoBuild
from pvaffinity.local.probe import agrees, version_of
from pvaffinity.local.reporter import Reporter
from pvaffinity.local.sources import Source, SourceError
from pvaffinity.paths import expanded
from pvaffinity.progress import Progress, quiet
from pvaffinity.versions import Release, load_versions

COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl", "etcd")
_OLDEST_ETCD = (3, 5, 24)  # MinExternalEtcdVersion of kubeadm 1.34 to 1.37, cmd/kubeadm/app/constants/constants.go
_SOURCES: Mapping[str, Callable[[Cache, Sequence[Item]], Source]] = {
    "download": lambda cache, lacking: Downloads(cache.root, lacking),
    "download!": lambda cache, lacking: Downloads(cache.root, lacking, insist=True),
    "build": lambda cache, lacking: GoBuild(cache.root, lacking),
    "build!": lambda cache, lacking: GoBuild(cache.root, lacking, prereleases=True),
}


@dataclass(frozen=True)
class Binaries:
    """Six binaries that are there, executable, and of the right version.

    Attributes:
        directory: where the Kubernetes ones are; etcd may be elsewhere.
        source: ``named``, or ``cache`` and what filled it: ``cache: built with go1.26.4``. For people.
    """

    release: Release
    directory: Path
    source: str
    paths: dict[str, Path]

    def path(self, name: str) -> Path:
        """The path of one of :data:`COMPONENTS`.

        Raises:
            KeyError: there is no such component.
        """
        return self.paths[name]

    @property
    def kubectl(self) -> Path:
        """The kubectl of this version."""
        return self.paths["kubectl"]


def items(release: Release) -> tuple[Item, ...]:
    """What has to be in the cache for a release."""
    return tuple(
        Item("etcd", load_versions().etcd, name) if name == "etcd" else Item("kubernetes", release.version, name)
        for name in COMPONENTS
    )


def ensure(
    release: Release,
    *,
    named: Path | None = None,
    progress: Progress = quiet,
    every: float = 15.0,
    sources: Sequence[str] = ("download", "build"),
    cache: Cache | None = None,
) -> Binaries:
    """Return the binaries of a release; get what the cache lacks.

    Args:
        release: which.
        named: use this directory, or its subdirectory named after the version, and nothing else.
        progress: told what is going on, at least every ``every`` seconds while it lasts.
        every: seconds.
        sources: where to get what is missing, in this order: ``download``, ``build``. With ``!`` they try
            harder: hosts that were unreachable a moment ago, pre-releases.
        cache: another cache than the user's.

    Raises:
        UserError: they cannot be had; says every way out.
    """
    if host()[0] != "linux":
        raise UserError(f"kubelets do not run on {host()[0]}", "use Linux, or another provider: --provider kind")
    if named:
        return _named(release, named)
    cache = cache or Cache()
    found = fetch(items(release), progress=progress, every=every, sources=sources, cache=cache)
    origin = _origin(cache.find(item).source for item in found)
    return Binaries(release, cache.root / _entry(release), origin, {item.name: path for item, path in found.items()})


def fetch(
    wanted: Sequence[Item],
    *,
    progress: Progress = quiet,
    every: float = 15.0,
    sources: Sequence[str] = ("download", "build"),
    cache: Cache | None = None,
) -> dict[Item, Path]:
    """Return where single binaries are in the cache; get what it lacks. Arguments as for :func:`ensure`.

    Raises:
        UserError: they cannot be had; says every way out.
    """
    cache = cache or Cache()
    found = {item: cache.find(item) for item in wanted}
    lacking = [item for item, state in found.items() if state.state != "ok"]
    if lacking:
        _get(lacking, cache, Reporter(progress, every), sources)
    return {item: state.path for item, state in found.items()}


def _origin(sources: Iterable[str]) -> str:
    """How binaries came into the cache, for people, from what each one's entry says."""
    told = []
    for source in sources:
        kind, _, what = source.partition(" ")
        if kind == "download":
            told.append(f"downloaded from {urlsplit(what.removeprefix('from ')).hostname}")
        elif kind == "build":
            told.append(f"built with {what.partition(' with ')[2] or 'Go'}")
    return ": ".join(["cache", *([", ".join(dict.fromkeys(told))] if told else [])])


def _entry(release: Release) -> str:
    """The cache entry of a release."""
    return items(release)[0].entry


def _get(lacking: Sequence[Item], cache: Cache, reporter: Reporter, names: Sequence[str]) -> None:
    with contextlib.ExitStack() as held:
        directories: dict[Item, Path] = {}
        for item in sorted(lacking, key=lambda item: item.key):  # in one order: nobody waits for one who waits for us
            reporter.start(str(item))
            directories[item] = held.enter_context(cache.making(item, reporter))
        states = {item: cache.find(item) for item in lacking}
        lacking = [item for item in lacking if states[item].state != "ok"]
        sources = [_SOURCES[name](cache, lacking) for name in names] if lacking else []
        for number, item in enumerate(lacking, 1):
            reporter.start(f"{item} ({number} of {len(lacking)})")
            if states[item].state == "corrupt":
                reporter.say(f"the copy in the cache is corrupt ({states[item].why}) and is replaced")
            _make(item, states[item], directories[item], cache, reporter, sources)


def _make(item: Item, now: Found, directory: Path, cache: Cache, reporter: Reporter, sources: Sequence[Source]) -> None:
    failures: list[SourceError] = []
    for source in sources:
        try:
            file, origin = source.get(item, directory, reporter)
            _check_made(item, file)
        except SourceError as failure:
            if failure.news:
                reporter.say(str(failure))
            failures.append(failure)
            continue
        cache.publish(item, file, origin)
        reporter.say(f"{origin.split()[0]} done in {reporter.elapsed:.0f} s")
        return
    corrupt = f"; the copy in the cache is corrupt: {now.why}" if now.state == "corrupt" else ""
    raise UserError(
        f"{item} cannot be had: " + "; ".join(str(f) for f in failures) + corrupt,
        " - or ".join([*dict.fromkeys(f.fix for f in failures if f.fix), "name a directory that holds the binaries"]),
        detail="\n".join(f.detail for f in failures if f.detail),
    )


def _check_made(item: Item, file: Path) -> None:
    file.chmod(0o755)
    try:
        version = version_of(file, item.name)
    except (OSError, ValueError) as error:
        raise SourceError(f"what came does not run: {error}") from error
    if not agrees(version, item.version):
        raise SourceError(f"what came says it is version {version}")


def _named(release: Release, named: Path) -> Binaries:
    named = expanded(named).absolute()
    below = named / release.version
    directory = below if below.is_dir() else named
    paths = {name: directory / name for name in COMPONENTS}
    if not paths["etcd"].exists() and below.is_dir():
        paths["etcd"] = named / "etcd"
    missing = [name for name, path in paths.items() if not path.is_file()]
    if missing:
        raise UserError(
            f"{directory} lacks {', '.join(missing)}",
            f"put all of {', '.join(COMPONENTS)} there, or name no directory to have them fetched",
        )
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: _check_named(release, paths[name], name), COMPONENTS))
    return Binaries(release, directory, "named", paths)


def _check_named(release: Release, path: Path, name: str) -> None:
    try:
        version = _known_version(path, name, path.stat().st_mtime_ns)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} does not run: {error}", f"put a {name} for {'/'.join(host())} there, and chmod +x it"
        ) from error
    if name == "etcd":
        if tuple(int(n) for n in re.findall(r"\d+", version)[:3]) < _OLDEST_ETCD:
            oldest = ".".join(map(str, _OLDEST_ETCD))
            raise UserError(f"{path} is version {version}, too old for Kubernetes", f"use etcd {oldest} or newer")
    elif not agrees(version, release.version):
        raise UserError(
            f"{path} is version {version}, but {release.version} is wanted",
            f"say --kubernetes-version {version}, or name a directory that holds {release.version}",
        )


@functools.cache
def _known_version(path: Path, name: str, changed: int) -> str:
    return version_of(path, name)
