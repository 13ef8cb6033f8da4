"""The clusters of one session: made at first need by whichever process needs one first, deleted by the session's owner.

Processes of a session (pytest's controller and its xdist workers) share one directory. A file lock per cluster decides
who creates it; what is about to be created is written down *before* it is created, so that the owner can delete it
whatever happened in between. A failure to create is remembered: it is told to everyone who asks, and tried once only.
"""

from __future__ import annotations

__all__ = ["Registry"]

import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock

from pvaffinity.errors import UserError
from pvaffinity.providers.base import Cluster, ClusterSpec, Provider


class Registry:
    """Access to a session's clusters.

    Args:
        directory: shared by the session's processes.
        clusters: where cluster directories are made (short paths: sockets lie in them).
        owner: the process whose end ends every cluster.
        providers: finds a provider by name.
    """

    def __init__(self, directory: Path, clusters: Path, owner: int, providers: Callable[[str], Provider]) -> None:
        self.directory = directory
        self.clusters = clusters
        self.owner = owner
        self._providers = providers
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        clusters.mkdir(parents=True, exist_ok=True, mode=0o700)

    def obtain(self, spec: ClusterSpec) -> Cluster:
        """The session's cluster for this spec, created now if nobody has.

        Raises:
            UserError: it cannot be created, or could not be when somebody else tried.
        """
        record, error = self.directory / f"{spec.id}.json", self.directory / f"{spec.id}.error"
        with filelock.FileLock(self.directory / f"{spec.id}.lock"):
            if error.exists():
                raise UserError(**json.loads(error.read_text()))
            if record.exists():
                return Cluster.load(Path(json.loads(record.read_text())["directory"]))
            try:
                return self._create(spec, record)
            except UserError as failure:
                told = {"what": failure.what, "fix": failure.fix, "detail": failure.detail}
                _write(error, told)
                raise

    def _create(self, spec: ClusterSpec, record: Path) -> Cluster:
        provider = self._providers(spec.provider)
        say = self.say_for(spec)
        provider.check(spec, say)
        name = f"pv-{spec.release.minor.replace('.', '')}-{spec.config.name}-{secrets.token_hex(3)}"
        directory = self.clusters / name
        directory.mkdir(mode=0o700)
        _write(
            record, {"directory": str(directory), "provider": spec.provider, "name": name}
        )  # intent, before creation
        try:
            cluster = provider.create(spec, name, directory, self.owner, say)
        except BaseException:
            record.unlink(missing_ok=True)
            raise
        cluster.save()
        return cluster

    def say_for(self, spec: ClusterSpec) -> Callable[[str], None]:
        """A progress callback that appends to the session's log, one line each; the owner shows it."""

        def say(line: str) -> None:
            with (self.directory / "progress.log").open("a") as log:
                log.write(f"{spec.id}: {line.rstrip()}\n")

        return say

    def __iter__(self) -> Iterator[Cluster]:
        """Every cluster that was created and is still recorded."""
        for record in sorted(self.directory.glob("*.json")):
            directory = Path(json.loads(record.read_text())["directory"])
            if (directory / "cluster.json").exists():
                yield Cluster.load(directory)

    def errors(self) -> list[UserError]:
        """What could not be created, and why."""
        return [UserError(**json.loads(path.read_text())) for path in sorted(self.directory.glob("*.error"))]

    def close(self, keep: Callable[[Cluster], bool] = lambda _: False) -> list[Cluster]:
        """Delete every cluster for which ``keep`` says no; the kept ones are returned.

        For the session's owner only. A cluster that somebody was still creating is deleted as well.
        """
        kept = []
        for record in sorted(self.directory.glob("*.json")):
            intent = json.loads(record.read_text())
            directory = Path(intent["directory"])
            cluster = _load_or_make_up(intent, directory)
            if (directory / "cluster.json").exists() and keep(cluster):
                self._providers(intent["provider"]).disown(cluster)
                kept.append(cluster)
                continue
            self._providers(intent["provider"]).delete(cluster)
            record.unlink(missing_ok=True)
        return kept


def _load_or_make_up(intent: dict[str, str], directory: Path) -> Cluster:
    try:
        return Cluster.load(directory)
    except OSError:
        kubeconfig = directory / "admin.kubeconfig"
        return Cluster(intent["name"], intent["provider"], "", "", directory, kubeconfig, None, frozenset())


def _write(path: Path, data: dict[str, str]) -> None:
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(json.dumps(data))
    temporary.replace(path)
