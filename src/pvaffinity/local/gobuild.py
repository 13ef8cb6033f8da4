"""Build binaries with Go: those of Kubernetes from the module k8s.io/kubernetes, others from modules of their own.

k8s.io/kubernetes cannot be required as it is: its go.mod replaces the staging modules by directories. A throw-away
module requires it, whose own ``require`` list then pins every dependency, and replaces the staging modules by their
published versions (v1.37.2 → v0.37.2).
"""

from __future__ import annotations

__all__ = ["BUILD_DISK", "FLAGS", "GoBuild", "etcd_go_mod", "kubernetes_go_mod", "link_flags"]

import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pvaffinity.local import toolchain
from pvaffinity.local.bincache import Cache, Item, disk_full, writing
from pvaffinity.local.goprocess import Go, GoError
from pvaffinity.local.reporter import Reporter
from pvaffinity.local.sources import SourceError

# Bytes of disk, with room to spare; measured on amd64 with 1.37.2: see the method _check. The last is for what Go makes
# while it works: as much again as it leaves in its cache, since all programs are built at once.
_KUBERNETES = {"GOCACHE": 4_000_000_000, "GOMODCACHE": 700_000_000, "": 4_300_000_000}
_OTHER = {"GOCACHE": 600_000_000, "GOMODCACHE": 100_000_000, "": 700_000_000}
BUILD_DISK = sum(_KUBERNETES.values())
"""Bytes the first build of a release takes, Go's own caches among them."""
_MODULES = {
    "kubernetes": "k8s.io/kubernetes",
    "etcd": "go.etcd.io/etcd/server/v3",
    "containerd": "github.com/containerd/containerd/v2",
    "cri-tools": "sigs.k8s.io/cri-tools",
    "kind": "sigs.k8s.io/kind",
}
_ONE_PROGRAM = ("etcd", "kind")  # their module is the program; others have theirs in cmd/
FLAGS = ("-trimpath", "-gcflags=all=-dwarf=false")
"""How packages are compiled: without what describes them to debuggers, which :func:`link_flags` leaves out anyway.

Whoever builds with the same flags takes over what Go's cache has of these builds.
"""
_STAMP = "k8s.io/component-base/version"


class GoBuild:
    """The source ``build`` (see :class:`pvaffinity.local.sources.Source`).

    Args:
        root: the cache's; logs of builds are kept there.
        wanted: what will be asked for, in this order: programs of one module are built together, in a tenth less time.
        prereleases: try versions of which not all modules are published.
    """

    def __init__(self, root: Path, wanted: Sequence[Item] = (), *, prereleases: bool = False) -> None:
        self._root = root
        self._wanted = wanted
        self._made: dict[Item, tuple[Path, str]] = {}
        self._prereleases = prereleases
        self._modules: dict[str, tuple[str, bytes]] = {}  # go.mod and go.sum, worked out for the first of its binaries

    def get(self, item: Item, directory: Path, reporter: Reporter) -> tuple[Path, str]:
        """Build the item in ``directory``, which must be there until what was built with it has been asked for, too."""
        if item not in self._made:
            self._build(item, directory, reporter)
        return self._made.pop(item)

    def _build(self, item: Item, directory: Path, reporter: Reporter) -> None:
        if "-" in item.version and not self._prereleases:
            raise SourceError("pre-releases are not built: their modules are not all published", news=False)
        go = Go(self._go(reporter), directory, self._root / "logs" / f"{item.key}.log", reporter)
        go.prepare()
        path, together = _MODULES[item.product], self._together(item)
        besides = f" together with {len(together) - 1} more" if together[1:] else ""
        reporter.say(f"building{besides} with {go.binary}")
        try:
            key = f"{path}@v{item.version}"
            if key not in self._modules:
                self._check(go, item)
                self._modules[key] = self._module(go, item)
            with writing(go.module):
                (go.module / "go.mod").write_text(self._modules[key][0], encoding="utf-8")
                (go.module / "go.sum").write_bytes(self._modules[key][1])
            packages = {each: path if each.product in _ONE_PROGRAM else f"{path}/cmd/{each.name}" for each in together}
            version = go("env", "GOVERSION").strip()  # of the toolchain that go.mod asks for, not of the one installed
            more = self._prepare(go)
            count = len(go("list", "-deps", *packages.values()).split())
            target = directory / "made"
            target.mkdir()
            output = target / item.name if item.product in _ONE_PROGRAM else target
            go("build", "-v", *FLAGS, *more, "-ldflags", link_flags(item), "-o", f"{output}",
               *packages.values(), packages=count)  # fmt: skip
        except GoError as error:
            raise SourceError(f"the Go build failed: {error}", detail=f"whole log: {go.log}") from error
        self._made |= {each: (target / each.name, f"build of {packages[each]} with {version}") for each in together}

    def _together(self, item: Item) -> list[Item]:
        """The item and those wanted after it that are programs of the same module."""
        after = list(self._wanted)[list(self._wanted).index(item) + 1 :] if item in self._wanted else []
        same = (item.product, item.version)
        return [item, *(each for each in after if (each.product, each.version) == same)]

    def unpack(self, modules: Iterable[str], directory: Path, reporter: Reporter) -> dict[str, Path]:
        """Where the sources of modules are in Go's module cache, by ``path@version``; fetched unless they are there.

        Args:
            modules: each as ``path@version``.
            directory: one that may be filled.
            reporter: told what is going on.

        Raises:
            SourceError: there is no Go, or a module cannot be had.
        """
        go = Go(self._go(reporter), directory, directory / "go.log", reporter)
        go.prepare()
        try:
            return {module: Path(_downloaded(go, module)["Dir"]) for module in modules}
        except GoError as error:
            raise SourceError(f"{error}", "set GOPROXY to a module proxy that has it") from error

    @staticmethod
    def _go(reporter: Reporter) -> str:
        """A go command; one that was fetched is in the user's cache, whatever is built."""
        root = Cache().root
        return toolchain.find(root) or toolchain.fetch(root, reporter)

    def _prepare(self, go: Go) -> Sequence[str]:
        """More options of the build; whoever overrides it may change the throw-away module as well."""
        return ()

    def _check(self, go: Go, item: Item) -> None:
        """Refuse before minutes of work: a Go that is too old, disks without room."""
        version = go("env", "GOVERSION", GOTOOLCHAIN="local").strip()
        if tuple(int(n) for n in re.findall(r"\d+", version)[:2]) < toolchain.OLDEST_GO:
            raise SourceError(f"{version} is too old", toolchain.INSTALL)
        places = {**json.loads(go("env", "-json", "GOCACHE", "GOMODCACHE")), "": str(self._root)}
        # Where the module was unpacked before, most of it has probably been compiled, too.
        known = Path(places["GOMODCACHE"], f"{_MODULES['kubernetes']}@v{item.version}").is_dir()
        needed = _KUBERNETES if item.product == "kubernetes" and not known else _OTHER
        needs: dict[int, tuple[Path, int]] = {}
        for name, place in places.items():
            existing = next(p for p in [Path(place), *Path(place).parents] if p.exists())
            device = existing.stat().st_dev
            needs[device] = (existing, needed[name] + needs.get(device, (existing, 0))[1])
        for existing, need in needs.values():
            if shutil.disk_usage(existing).free < need:
                raise disk_full(existing, need)

    def _module(self, go: Go, item: Item) -> tuple[str, bytes]:
        data = _downloaded(go, f"{_MODULES[item.product]}@v{item.version}")
        theirs, sums = Path(data["GoMod"]).read_text(encoding="utf-8"), Path(data["Dir"], "go.sum")
        text = (
            kubernetes_go_mod(theirs, item.version)
            if item.product == "kubernetes"
            else plain_go_mod(_MODULES[item.product], theirs, item.version)
        )
        return text, sums.read_bytes() if sums.exists() else b""


def _downloaded(go: Go, module: str) -> Mapping[str, str]:
    """What ``go mod download`` says of a module, such as its unpacked ``Dir``; ``module`` is ``path@version``.

    Raises:
        GoError: it cannot be had.
    """
    try:
        output = go("mod", "download", "-json", module, GOFLAGS="")
    except GoError as error:
        if not error.output.startswith("{"):
            raise
        output = error.output
    data: Mapping[str, str] = json.loads(output)
    if "Error" in data:
        raise go.error(data["Error"])
    return data


def link_flags(item: Item) -> str:
    """Value of ``-ldflags``: no debug information, and what ``--version`` tells (k8s.io/component-base/version)."""
    if item.product == "cri-tools":
        return f"-s -w -X {_MODULES[item.product]}/pkg/version.Version={item.version}"
    if item.product != "kubernetes":
        return "-s -w"
    major, minor = item.version.split(".")[:2]
    stamps = {
        "gitVersion": f"v{item.version}",
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
    }
    return " ".join(["-s -w", *(f"-X {_STAMP}.{key}={value}" for key, value in stamps.items())])


def kubernetes_go_mod(theirs: str, version: str) -> str:
    """The throw-away module's go.mod, from that of k8s.io/kubernetes."""
    staging = re.findall(r"^\s*(?:replace\s+)?(\S+) => \./staging/", theirs, re.MULTILINE)
    others = re.findall(r"^\s*(?:replace\s+)?(\S.* => (?!\./)\S+ v\S+)", theirs, re.MULTILINE)
    published = "v0." + version.split(".", 1)[1]
    lines = [
        "module build",
        *_directives(theirs),
        f"require k8s.io/kubernetes v{version}",
        *(f"replace {name} => {name} {published}" for name in staging),
        *(f"replace {line}" for line in others),
    ]
    return "\n".join(lines) + "\n"


def etcd_go_mod(theirs: str, version: str) -> str:
    """The throw-away module's go.mod, from that of etcd's server."""
    return plain_go_mod(_MODULES["etcd"], theirs, version)


def plain_go_mod(path: str, theirs: str, version: str) -> str:
    """The throw-away module's go.mod for a module that can be required as it is."""
    return "\n".join(["module build", *_directives(theirs), f"require {path} v{version}"]) + "\n"


def _directives(theirs: str) -> list[str]:
    """The language version, and with it the behaviour of the standard library, is the one they were tested with."""
    return re.findall(r"^go \S+$|^godebug [^(\n]+$", theirs, re.MULTILINE)
