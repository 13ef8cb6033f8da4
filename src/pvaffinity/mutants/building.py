"""Build an altered component, and put it beside the unaltered others of its release.

Go replaces single files while it compiles (``-overlay``), but none below its module cache. So the throw-away module
takes the one altered module from a symbolic link elsewhere; with ``-trimpath`` the packages' identity is the same, and
Go's build cache serves all but what the change touches: about 15 seconds of work, the first time as well.
"""

from __future__ import annotations

__all__ = ["Builder"]

import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pvaffinity.errors import UserError
from pvaffinity.local.binaries import Binaries
from pvaffinity.local.bincache import Cache, Item, writing
from pvaffinity.local.gobuild import GoBuild
from pvaffinity.local.goprocess import Go
from pvaffinity.local.reporter import Reporter
from pvaffinity.local.sources import SourceError
from pvaffinity.mutants.catalogue import Mutant
from pvaffinity.paths import cache_dir, scratch_dir


class Builder:
    """Builds mutants of one release.

    Args:
        unaltered: the release's binaries, which the others are linked to.
        reporter: told what is going on.
        root: where altered binaries are kept; default: below the cache directory.
    """

    def __init__(self, unaltered: Binaries, reporter: Reporter, root: Path | None = None) -> None:
        self._unaltered = unaltered
        self._reporter = reporter
        self._root = root or cache_dir() / "mutants"
        self._sources: Mapping[str, Path] = {}

    @property
    def _version(self) -> str:
        return self._unaltered.release.version

    def _place(self, mutant: Mutant) -> tuple[Cache, Item]:
        return Cache(self._root / mutant.key(self._version)), Item("kubernetes", self._version, mutant.component)

    def lacking(self, mutants: Iterable[Mutant]) -> list[Mutant]:
        """Those that are not built yet."""
        places = {mutant: self._place(mutant) for mutant in mutants}
        return [mutant for mutant, (cache, item) in places.items() if cache.find(item).state != "ok"]

    def check(self, mutants: Sequence[Mutant]) -> None:
        """See that every text stands where it should, before anything is built.

        Raises:
            UserError: one does not fit the release, or the sources cannot be had.
        """
        if not mutants:
            return
        modules = {module: f"{module}@{_published(module, self._version)}" for module in {m.module for m in mutants}}
        directory = scratch_dir("mutants")
        try:
            found = GoBuild(self._root).unpack(modules.values(), directory, self._reporter)
        except SourceError as error:
            fix = error.fix or "see the message"
            raise UserError(f"Kubernetes' sources cannot be had: {error}", fix, detail=error.detail) from error
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        self._sources = {module: found[wanted] for module, wanted in modules.items()}
        wrong = [problem for mutant in mutants if (problem := self._problem(mutant))]
        if wrong:
            raise UserError(wrong[0].what, wrong[0].fix, detail="\n".join(problem.what for problem in wrong[1:]))

    def _problem(self, mutant: Mutant) -> UserError | None:
        path = self._sources[mutant.module] / mutant.inside
        try:
            mutant.applied(path.read_text(encoding="utf-8"), self._version)
        except OSError as error:
            what = f"mutant {mutant.name} does not fit Kubernetes {self._version}: {mutant.file}: {error.strerror}"
            return UserError(what, f"correct 'file' in mutants/{mutant.component}.toml")
        except UserError as problem:
            return problem
        return None

    def build(self, mutant: Mutant) -> Path:
        """A directory with the altered binary and links to the others; built unless it is there. Check first.

        Raises:
            UserError: it does not compile, or the cache cannot be written.
        """
        cache, item = self._place(mutant)
        found = cache.find(item)
        if found.state != "ok":
            self._reporter.start(f"{mutant.name} ({item})")
            with cache.making(item, self._reporter) as directory:
                try:
                    source = _Altered(cache.root, mutant, self._sources[mutant.module])
                    file, origin = source.get(item, directory, self._reporter)
                except SourceError as error:
                    raise UserError(
                        f"mutant {mutant.name} cannot be built: {error}",
                        f"correct 'put' in mutants/{mutant.component}.toml",
                        detail=error.detail,
                    ) from error
                cache.publish(item, file, f"{origin}, mutant {mutant.name}")
        directory = found.path.parent
        with writing(directory):
            for name, path in self._unaltered.paths.items():
                link = directory / name
                if name != mutant.component and (not link.is_symlink() or link.readlink() != path):
                    link.unlink(missing_ok=True)
                    link.symlink_to(path)
        return directory


class _Altered(GoBuild):
    """The build of one component with one file altered."""

    def __init__(self, root: Path, mutant: Mutant, sources: Path) -> None:
        super().__init__(root, prereleases=True)
        self._mutant = mutant
        self._sources = sources

    def _prepare(self, go: Go) -> Sequence[str]:
        """Take the module from a link outside Go's module cache, and lay the altered file over it."""
        link, altered, overlay = (go.work / name for name in ("sources", "altered.go", "overlay.json"))
        original = link / self._mutant.inside
        go_mod = go.module / "go.mod"
        with writing(go.work):
            link.symlink_to(self._sources)
            version = self._sources.name.partition("@v")[2]
            altered.write_text(self._mutant.applied(original.read_text(encoding="utf-8"), version), encoding="utf-8")
            overlay.write_text(json.dumps({"Replace": {str(original): str(altered)}}), encoding="utf-8")
            text = go_mod.read_text(encoding="utf-8")
            go_mod.write_text(replaced(text, self._mutant.module, link), encoding="utf-8")
        return "-overlay", str(overlay)


def replaced(go_mod: str, module: str, directory: Path) -> str:
    """A go.mod in which a module comes from a directory, whatever it came from before."""
    kept = re.sub(rf"^replace {re.escape(module)} => .*\n", "", go_mod, flags=re.MULTILINE)
    return f"{kept}replace {module} => {directory}\n"


def _published(module: str, version: str) -> str:
    """Staging modules are published as v0.37.2 where Kubernetes is v1.37.2."""
    return f"v{version}" if module == "k8s.io/kubernetes" else "v0." + version.split(".", 1)[1]
