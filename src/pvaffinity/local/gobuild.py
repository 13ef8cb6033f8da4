"""Build the binaries with Go, from the modules k8s.io/kubernetes and go.etcd.io/etcd/server/v3.

k8s.io/kubernetes cannot be required as it is: its go.mod replaces the staging modules by directories. A throw-away
module requires it, whose own ``require`` list then pins every dependency, and replaces the staging modules by their
published versions (v1.37.2 → v0.37.2).
"""

from __future__ import annotations

__all__ = ["GoBuild"]

import json
import os
import re
import shutil
from pathlib import Path

from pvaffinity.local.bincache import Item, disk_full, host, writing
from pvaffinity.local.goprocess import first_error, run
from pvaffinity.local.reporter import Reporter
from pvaffinity.local.sources import SourceError

_GO_PLACES = ("/usr/local/go/bin/go", "/usr/lib/go/bin/go", "/snap/bin/go")
_OLDEST_GO = (1, 21)  # the first that fetches the toolchain a module asks for
_INSTALL = "install Go 1.21 or newer (https://go.dev/dl/)"
# Bytes for all six, measured on amd64 with 1.34.4 to 1.37.2: build cache 3.0 to 4.5 GB, modules 0.4, binaries 0.5.
_NEEDS = {"GOCACHE": 4_500_000_000, "GOMODCACHE": 700_000_000, "": 1_000_000_000}
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

    def get(self, item: Item, directory: Path, reporter: Reporter) -> tuple[Path, str]:
        """Build the item in ``directory``."""
        if "-" in item.version and not self._prereleases:
            raise SourceError("pre-releases are not built: their modules are not all published", news=False)
        go = _find_go()
        log = self._root / "logs" / f"{item.key}.log"
        with writing(log):
            log.parent.mkdir(exist_ok=True)
            log.write_text("")
            module, temporary = directory / "module", directory / "go-tmp"
            module.mkdir()
            temporary.mkdir()
        env = _environment(temporary)
        reporter.say(f"building with {go}")
        target = directory / item.name
        commands = _kubernetes if item.product == "kubernetes" else _etcd
        package, flags = commands(item, go, module, env, log, reporter)
        self._check_space(go, module, env, item, log, reporter)
        build = [go, "build", "-v", "-trimpath", "-ldflags", flags, "-o", str(target), package]
        _checked(build, module, env, log, reporter, item)
        return target, f"build of {package}"

    def _check_space(
        self, go: str, module: Path, env: dict[str, str], item: Item, log: Path, reporter: Reporter
    ) -> None:
        """Refuse before minutes of work, if Go's caches hold nothing of this version and the disks have no room."""
        places = json.loads(_checked([go, "env", "-json", "GOCACHE", "GOMODCACHE"], module, env, log, reporter, item))
        places[""] = str(self._root)
        warm = item.product == "etcd" or any(self._root.glob(f"{item.entry}/kube*"))
        needs: dict[int, tuple[Path, int]] = {}
        for name, place in places.items():
            existing = next(p for p in [Path(place), *Path(place).parents] if p.exists())
            need = (_NEEDS[name] // 4 if warm else _NEEDS[name]) + needs.get(existing.stat().st_dev, (existing, 0))[1]
            needs[existing.stat().st_dev] = (existing, need)
        for place, need in needs.values():
            if shutil.disk_usage(place).free < need:
                raise disk_full(place, need)


def _find_go() -> str:
    go = shutil.which("go") or next((p for p in _GO_PLACES if os.access(p, os.X_OK)), None)
    if not go:
        raise SourceError("there is no Go to build it with", _INSTALL)
    return go


def _environment(temporary: Path) -> dict[str, str]:
    """The user's environment, less what would break the build; proxies and caches of Go stay the user's."""
    system, machine = host()
    ours = {
        "CGO_ENABLED": "0",
        "GO111MODULE": "on",
        "GOARCH": machine,
        "GOFLAGS": "-mod=mod",
        "GOOS": system,
        "GOTMPDIR": str(temporary),
        "GOTOOLCHAIN": "auto",
        "GOWORK": "off",
    }
    return {**os.environ, **ours}


def _checked(command: list[str], module: Path, env: dict[str, str], log: Path, reporter: Reporter, item: Item) -> str:
    code, output = run(command, module, env, log, reporter)
    if code == 0:
        return output
    text = log.read_text(errors="replace")
    if "no space left on device" in text or "disk quota exceeded" in text:
        raise disk_full(module)
    raise SourceError(f"the Go build failed: {first_error(text)}", detail=f"whole log: {log}")


def _download(
    path: str, module: Path, env: dict[str, str], go: str, log: Path, reporter: Reporter, item: Item
) -> dict[str, str]:
    version = _checked([go, "env", "GOVERSION"], module, {**env, "GOTOOLCHAIN": "local"}, log, reporter, item)
    if tuple(int(n) for n in re.findall(r"\d+", version)[:2]) < _OLDEST_GO:
        raise SourceError(f"{version.strip()} is too old", _INSTALL)
    command = [go, "mod", "download", "-json", f"{path}@v{item.version}"]
    code, output = run(command, module, {**env, "GOFLAGS": ""}, log, reporter)
    data: dict[str, str] = json.loads(output or "{}")
    if code or "Error" in data:
        with log.open("a") as file:
            file.write(data.get("Error", ""))
        text = data.get("Error") or log.read_text(errors="replace")
        if "no space left on device" in text:
            raise disk_full(module)
        raise SourceError(f"the Go module cannot be had: {first_error(text)}", detail=f"whole log: {log}")
    return data


def _kubernetes(
    item: Item, go: str, module: Path, env: dict[str, str], log: Path, reporter: Reporter
) -> tuple[str, str]:
    data = _download("k8s.io/kubernetes", module, env, go, log, reporter, item)
    theirs = Path(data["GoMod"]).read_text()
    with writing(module):
        (module / "go.mod").write_text(go_mod(theirs, item.version))
        (module / "go.sum").write_bytes((Path(data["Dir"]) / "go.sum").read_bytes())
    major, minor = item.version.split(".")[:2]
    stamps = {
        "gitVersion": f"v{item.version}",
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
    }
    flags = " ".join(["-s -w", *(f"-X {_STAMP}.{key}={value}" for key, value in stamps.items())])
    return f"k8s.io/kubernetes/cmd/{item.name}", flags


def go_mod(theirs: str, version: str) -> str:
    """The throw-away module's go.mod, from that of k8s.io/kubernetes."""
    go = re.search(r"^go \S+$", theirs, re.MULTILINE)
    debug = re.findall(r"^godebug [^(\n]+$", theirs, re.MULTILINE)
    staging = re.findall(r"^\s*(?:replace\s+)?(\S+) => \./staging/", theirs, re.MULTILINE)
    others = re.findall(r"^\s*(?:replace\s+)?(\S.* => (?!\./)\S+ v\S+)", theirs, re.MULTILINE)
    published = "v0." + version.split(".", 1)[1]
    lines = [
        "module build",
        *([go[0]] if go else []),
        *debug,
        f"require k8s.io/kubernetes v{version}",
        *(f"replace {name} => {name} {published}" for name in staging),
        *(f"replace {line}" for line in others),
    ]
    return "\n".join(lines) + "\n"


def _etcd(item: Item, go: str, module: Path, env: dict[str, str], log: Path, reporter: Reporter) -> tuple[str, str]:
    data = _download("go.etcd.io/etcd/server/v3", module, env, go, log, reporter, item)
    version = re.search(r"^go \S+$", Path(data["GoMod"]).read_text(), re.MULTILINE)
    lines = ["module build", *([version[0]] if version else []), f"require go.etcd.io/etcd/server/v3 v{item.version}"]
    with writing(module):
        (module / "go.mod").write_text("\n".join(lines) + "\n")
        theirs = Path(data["Dir"]) / "go.sum"
        (module / "go.sum").write_bytes(theirs.read_bytes() if theirs.exists() else b"")
    return "go.etcd.io/etcd/server/v3", "-s -w"
