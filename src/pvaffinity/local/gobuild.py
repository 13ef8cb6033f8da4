"""Build binaries with Go: those of Kubernetes from the module k8s.io/kubernetes, others from modules of their own.

k8s.io/kubernetes cannot be required as it is: its go.mod replaces the staging modules by directories. A throw-away
module requires it, whose own ``require`` list then pins every dependency, and replaces the staging modules by their
published versions (v1.37.2 → v0.37.2).
"""

from __future__ import annotations

__all__ = ["BUILD_DISK", "INSTALL", "OLDEST_GO", "GoBuild", "etcd_go_mod", "kubernetes_go_mod", "link_flags"]

import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pvaffinity.local.bincache import Item, disk_full, writing
from pvaffinity.local.goprocess import Go, GoError
from pvaffinity.local.reporter import Reporter
from pvaffinity.local.sources import SourceError

_GO_PLACES = ("/usr/local/go/bin/go", "/usr/lib/go/bin/go", "/snap/bin/go")
OLDEST_GO = (1, 21)
"""The first that fetches the toolchain a module asks for; that one compiles."""
INSTALL = f"install Go {'.'.join(map(str, OLDEST_GO))} or newer (https://go.dev/dl/)"
"""What to do where there is no Go, or one too old."""
# Bytes of disk, with room to spare; measured on amd64 with 1.34.4 to 1.37.2: see the method _check.
_KUBERNETES = {"GOCACHE": 4_500_000_000, "GOMODCACHE": 700_000_000, "": 1_500_000_000}
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
_STAMP = "k8s.io/component-base/version"


class GoBuild:
    """The source ``build`` (see :class:`pvaffinity.local.sources.Source`).

    Args:
        root: the cache's; logs of builds are kept there.
        prereleases: try versions of which not all modules are published.
    """

    def __init__(self, root: Path, *, prereleases: bool = False) -> None:
        self._root = root
        self._prereleases = prereleases
        self._modules: dict[str, tuple[str, bytes]] = {}  # go.mod and go.sum, worked out for the first of its binaries

    def get(self, item: Item, directory: Path, reporter: Reporter) -> tuple[Path, str]:
        """Build the item in ``directory``."""
        if "-" in item.version and not self._prereleases:
            raise SourceError("pre-releases are not built: their modules are not all published", news=False)
        go = Go(_find_go(), directory, self._root / "logs" / f"{item.key}.log", reporter)
        go.prepare()
        path = _MODULES[item.product]
        reporter.say(f"building with {go.binary}")
        try:
            key = f"{path}@v{item.version}"
            if key not in self._modules:
                self._check(go, item)
                self._modules[key] = self._module(go, item)
            with writing(go.module):
                (go.module / "go.mod").write_text(self._modules[key][0], encoding="utf-8")
                (go.module / "go.sum").write_bytes(self._modules[key][1])
            target = directory / item.name
            package = path if item.product in _ONE_PROGRAM else f"{path}/cmd/{item.name}"
            version = go("env", "GOVERSION").strip()  # of the toolchain that go.mod asks for, not of the one installed
            more = self._prepare(go)
            go("build", "-v", "-trimpath", *more, "-ldflags", link_flags(item), "-o", str(target), package)
        except GoError as error:
            raise SourceError(f"the Go build failed: {error}", detail=f"whole log: {go.log}") from error
        return target, f"build of {package} with {version}"

    def unpack(self, modules: Iterable[str], directory: Path, reporter: Reporter) -> dict[str, Path]:
        """Where the sources of modules are in Go's module cache, by ``path@version``; fetched unless they are there.

        Args:
            modules: each as ``path@version``.
            directory: one that may be filled.
            reporter: told what is going on.

        Raises:
            SourceError: there is no Go, or a module cannot be had.
        """
        go = Go(_find_go(), directory, directory / "go.log", reporter)
        go.prepare()
        try:
            return {module: Path(_downloaded(go, module)["Dir"]) for module in modules}
        except GoError as error:
            raise SourceError(f"{error}", "set GOPROXY to a module proxy that has it") from error

    def _prepare(self, go: Go) -> Sequence[str]:
        """More options of the build; whoever overrides it may change the throw-away module as well."""
        return ()

    def _check(self, go: Go, item: Item) -> None:
        """Refuse before minutes of work: a Go that is too old, disks without room."""
        version = go("env", "GOVERSION", GOTOOLCHAIN="local").strip()
        if tuple(int(n) for n in re.findall(r"\d+", version)[:2]) < OLDEST_GO:
            raise SourceError(f"{version} is too old", INSTALL)
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


def _find_go() -> str:
    go = shutil.which("go") or next((p for p in _GO_PLACES if os.access(p, os.X_OK)), None)
    if not go:
        raise SourceError("there is no Go to build it with", INSTALL)
    return str(Path(go).absolute())


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
