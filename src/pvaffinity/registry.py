"""The clusters of one session: made at first need by whichever process needs one first, deleted by the session's owner.

A machine need not have room for all of them at once: a cluster that nobody is using makes room for the next, and is
made again if somebody comes back to it.

Processes of a session (pytest's controller and its xdist workers) share one directory. A file lock per cluster decides
who creates it; what is about to be created is written down *before* it is created, so that the owner can delete it
whatever happened in between. A failure to create is remembered: it is told to everyone who asks, and tried once only.
"""

from __future__ import annotations

__all__ = ["PREFIX", "Closed", "Registry", "cluster_name"]

import contextlib
import json
import re
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import filelock
import psutil

from pvaffinity import lastlogs, records, room, turns
from pvaffinity.errors import RoomError, UserError
from pvaffinity.local.owner import Owner, remove_unused
from pvaffinity.paths import write_whole
from pvaffinity.providers.base import Cluster, ClusterSpec, Provider

PREFIX = "pv"
"""Of cluster names, where no other is asked for."""
_CONFIG_LENGTH = 20  # of a host's name, which has 63 characters, what a configuration's name may take


class Closed(NamedTuple):
    """What became of a session's clusters: those that were kept, and by name why others could not be deleted."""

    kept: list[Cluster]
    failed: dict[str, UserError]


class Registry:
    """Access to a session's clusters.

    Args:
        directory: shared by the session's processes.
        clusters: where cluster directories are made (short paths: sockets lie in them).
        owner: the process whose end ends every cluster.
        providers: finds a provider by name.
        keeps: whether clusters are to be kept at the end, so that none may make room for another.
        prefix: of the clusters' names.
        logs: where logs go that somebody wants to keep, see :meth:`want_logs`; None: nowhere.
    """

    def __init__(
        self,
        directory: Path,
        clusters: Path,
        owner: int,
        providers: Callable[[str], Provider],
        *,
        keeps: bool = False,
        prefix: str = PREFIX,
        logs: Path | None = None,
    ) -> None:
        self.directory = directory
        self.clusters = clusters
        self.owner = owner
        self.keeps = keeps
        self.prefix = prefix
        self.logs = logs
        self._providers = providers
        self._stuck: set[Path] = set()  # records of clusters that could not be deleted
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        clusters.mkdir(parents=True, exist_ok=True, mode=0o700)

    def obtain(self, spec: ClusterSpec, user: int = 0) -> Cluster:
        """The session's cluster for this spec, created now if nobody has.

        Args:
            spec: which cluster.
            user: the process that uses it from now on, until :meth:`release` or its end; 0: nobody in particular.

        Raises:
            UserError: it cannot be created, or could not be when somebody else tried.
        """
        while True:
            reserved = room.reserved()
            try:
                return self._obtain(spec, user)
            except RoomError as short:
                if not self._make_room(spec, reserved, user):
                    self._remember(spec, short)
                    raise

    def _obtain(self, spec: ClusterSpec, user: int) -> Cluster:
        record, error = self.directory / f"{spec.id}.json", self.directory / f"{spec.id}.error"
        with filelock.FileLock(self.directory / f"{spec.id}.lock"):
            if error.exists():
                raise UserError(**json.loads(error.read_text(encoding="utf-8")))
            users = self.directory / f"{spec.id}.users"
            users.mkdir(exist_ok=True)
            cluster = self._attach(record)
            if cluster is None:
                try:
                    if record.exists():  # half a cluster, of a maker that died or could not undo what it had done
                        self._delete(record)
                    cluster = self._create(spec, record)
                except RoomError:
                    raise
                except UserError as failure:
                    self._remember(spec, failure)
                    raise
            if user:
                (users / str(user)).touch()
            return cluster

    @staticmethod
    def _attach(record: Path) -> Cluster | None:
        try:
            return Cluster.load(Path(json.loads(record.read_text(encoding="utf-8"))["directory"]))
        except FileNotFoundError:
            return None

    def _delete(self, record: Path) -> None:
        intent = json.loads(record.read_text(encoding="utf-8"))
        cluster = records.cluster(intent)
        self._providers(intent["provider"]).delete(cluster, self._say(record.stem))
        record.unlink(missing_ok=True)

    def release(self, spec: ClusterSpec, user: int) -> None:
        """``user`` needs the cluster no more; it stays until its room is needed or the session ends."""
        (self.directory / f"{spec.id}.users" / str(user)).unlink(missing_ok=True)

    def want_logs(self, spec: ClusterSpec) -> None:
        """Have the logs of this cluster saved before it is deleted: something failed on it."""
        lastlogs.want(self.directory / f"{spec.id}.json")

    def _save_logs(self, record: Path, cluster: Cluster) -> None:
        if self.logs is not None:
            lastlogs.save(record, cluster, self._providers(cluster.provider), self.logs, self._say(record.stem))

    def _remember(self, spec: ClusterSpec, failure: UserError) -> None:
        told = {"what": failure.what, "fix": failure.fix, "detail": failure.detail}
        with contextlib.suppress(OSError):  # a full disk may be the very failure, and that is what must be told
            records.write(self.directory / f"{spec.id}.error", told)

    def _make_room(self, spec: ClusterSpec, reserved: room.Room, user: int) -> bool:
        """Delete a cluster that nobody uses, or wait until there is one; False where there is nothing to wait for.

        A cluster that has come up since ``reserved`` may have taken less than it reserved: worth another try, too. One
        that ``user`` itself uses is not waited for: nobody else would let go of it.
        """
        waited = False
        if self.keeps:
            return self._await_reservations(spec, reserved)
        while others := [path for path in self._records() if path.stem != spec.id and self._may_go(path, user)]:
            if room.reserved() != reserved:
                return True
            for record in others:
                if self._evict(record):
                    self.say_for(spec)(f"deleted {record.stem} to make room")
                    return True
            busy = [path.stem for path in others if path not in self._stuck]
            if busy and not waited:
                self.say_for(spec)(f"waiting for room: {', '.join(busy)} in use")
                waited = True
            time.sleep(0.5)
        return waited or self._await_reservations(spec, reserved)

    def _await_reservations(self, spec: ClusterSpec, before: room.Room) -> bool:
        """Wait for a cluster that somebody is just making; False where nobody is."""
        if before == room.reserved() != room.Room():
            self.say_for(spec)("waiting for room: another cluster is being made")
        while (now := room.reserved()) == before != room.Room():
            time.sleep(0.5)
        return now != before

    def _evict(self, record: Path) -> bool:
        try:
            with filelock.FileLock(record.with_suffix(".lock"), timeout=0):
                if not record.exists() or any(psutil.pid_exists(user) for user in records.users(record)):
                    return False
                intent = json.loads(record.read_text(encoding="utf-8"))
                cluster = records.cluster(intent)
                if "id" in cluster.notes:
                    write_whole(
                        record.with_suffix(".past"), (cluster.directory / "cluster.json").read_text(encoding="utf-8")
                    )
                self._save_logs(record, cluster)
                self._delete(record)
                return True
        except filelock.Timeout:
            return False  # somebody is just taking or making it
        except UserError as error:  # tried again at the end
            self._say(record.stem)(f"could not be deleted to make room: {error.what}")
            self._stuck.add(record)
            return False

    def _may_go(self, record: Path, user: int) -> bool:
        return record not in self._stuck and user not in records.users(record)

    def _records(self) -> list[Path]:
        return sorted(self.directory.glob("*.json"))

    def _create(self, spec: ClusterSpec, record: Path) -> Cluster:
        # Others may be making theirs: what the check found free is reserved until this one is up. A turn of the session
        # keeps away from who has it alone. Whoever waits for room has let go of it: the user of the cluster that is to
        # make room may be waiting for the session.
        try:
            with turns.shared(self.directory):
                return self._create_checked(spec, record)
        finally:
            room.settle()

    def _create_checked(self, spec: ClusterSpec, record: Path) -> Cluster:
        provider = self._providers(spec.provider)
        say = self.say_for(spec)
        provider.check(spec, say)
        name = cluster_name(self.prefix, spec)
        directory = self.clusters / name
        directory.mkdir(mode=0o700)
        records.write(
            record, {"directory": str(directory), "provider": spec.provider, "name": name}
        )  # intent, before creation
        try:
            Owner.of(self.owner).claim(directory)  # before the provider, which may build binaries for minutes
            cluster = provider.create(spec, name, directory, self.owner, say)
        except BaseException:
            remove_unused(directory)  # where the provider left nothing in it
            if not directory.exists():  # else something may be left, which the session's end tries again to delete
                record.unlink(missing_ok=True)
            raise
        cluster.save()
        return cluster

    def say_for(self, spec: ClusterSpec) -> Callable[[str], None]:
        """A progress callback that appends to the session's log, one line each; the owner shows it."""
        return self._say(spec.id)

    def _say(self, spec_id: str) -> Callable[[str], None]:
        def say(line: str) -> None:
            with (self.directory / "progress.log").open("a", encoding="utf-8") as log:
                log.write(f"{spec_id}: {line.rstrip()}\n")

        return say

    def __iter__(self) -> Iterator[Cluster]:
        """Every cluster of the session, also those that have made room for another."""
        found: dict[str, Cluster] = {}
        for past in sorted(self.directory.glob("*.past")):
            found[past.stem] = Cluster.parse(past.read_text(encoding="utf-8"))
        for record in self._records():
            directory = Path(json.loads(record.read_text(encoding="utf-8"))["directory"])
            if (directory / "cluster.json").exists():
                found[record.stem] = Cluster.load(directory)
        return iter([found[key] for key in sorted(found)])

    def errors(self) -> list[UserError]:
        """What could not be created, and why."""
        return [
            UserError(**json.loads(path.read_text(encoding="utf-8"))) for path in sorted(self.directory.glob("*.error"))
        ]

    def close(self, keep: Callable[[Cluster], bool] = lambda _: False) -> Closed:
        """Delete every cluster for which ``keep`` says no. One that cannot be deleted does not keep the others.

        For the session's owner only. A cluster that somebody was still creating is deleted as well.
        """
        kept: list[Cluster] = []
        failed: dict[str, UserError] = {}
        for record in self._records():
            intent = json.loads(record.read_text(encoding="utf-8"))
            directory = Path(intent["directory"])
            cluster = records.cluster(intent)
            if (directory / "cluster.json").exists() and keep(cluster):
                self._providers(intent["provider"]).disown(cluster)
                kept.append(cluster)
                continue
            try:
                self._save_logs(record, cluster)
            except KeyboardInterrupt:
                self.logs = None  # in a hurry: delete, and nothing else
            try:
                self._delete(record)
            except UserError as error:
                failed[cluster.name] = error
        return Closed(kept, failed)


def cluster_name(prefix: str, spec: ClusterSpec) -> str:
    """A name nobody else has, such as ``pv-137-gate-on-3fa2c1``, that will do for hosts and kind clusters."""
    config = re.sub(r"[^a-z0-9]+", "-", spec.config.name.lower()).strip("-")[:_CONFIG_LENGTH].rstrip("-") or "config"
    return f"{prefix}-{spec.release.minor.replace('.', '')}-{config}-{secrets.token_hex(3)}"
