"""A provider that only writes down what it is asked, and a session's registry of its clusters."""

import os
from pathlib import Path

from pvaffinity.clusterconfig import load_config
from pvaffinity.errors import RoomError, UserError
from pvaffinity.providers.base import Cluster, ClusterSpec, Power
from pvaffinity.registry import Registry
from pvaffinity.versions import load_versions

POWERS = frozenset({Power.COMPONENT_LOGS})


class Recorder:
    """A provider that writes down what it is asked, in files, so that other processes see it."""

    name = "recorder"

    def __init__(self, log: Path, fail: str = "", most: int | None = None) -> None:
        self.log, self.fail, self.most = log, fail, most
        self.silent, self.logs = "", "I0102 started"

    def note(self, line):
        with self.log.open("a") as out:
            out.write(line + "\n")

    def check(self, spec, progress):
        made = [line.split()[0] for line in self.log.read_text().splitlines()] if self.log.exists() else []
        if self.most is not None and made.count("create") - made.count("delete") >= self.most:
            raise RoomError("the machine is full", "end something")

    def create(self, spec, name, directory, owner, progress):
        self.note(f"create {spec.id}")
        progress("half way")
        if self.fail == "interrupt":
            raise KeyboardInterrupt
        if self.fail:
            raise UserError(self.fail, "do something", detail="the log's tail")
        (directory / "state").write_text(str(owner))
        return Cluster(
            name, "recorder", spec.release.version, spec.config.name, directory, directory / "k", None, POWERS
        )

    def delete(self, cluster, progress=None):
        if self.silent and self.silent in cluster.name:
            raise UserError("its engine is gone", "start it")
        self.note(f"delete {cluster.name}")

    def export_logs(self, cluster, destination):
        self.note(f"logs {cluster.name}")
        if isinstance(self.logs, BaseException):
            raise self.logs
        destination.mkdir(parents=True)
        (destination / "kubelet.log").write_text(self.logs)

    def disown(self, cluster):
        self.note(f"disown {cluster.name}")


def registry(tmp_path, fail="", most=None, keeps=False):
    recorder = Recorder(tmp_path / "log", fail, most)
    where = {"directory": tmp_path / "session", "clusters": tmp_path / "clusters", "logs": tmp_path / "evidence"}
    return Registry(owner=os.getpid(), providers=lambda _: recorder, keeps=keeps, **where)


def spec(config="gate-on"):
    return ClusterSpec("recorder", load_versions().newest, load_config(config))
