"""The protocol every provider serves: create, attach to, and delete a cluster, and a few optional powers.

A cluster is a value: (provider, Kubernetes release, configuration). What a provider makes of it is a
:class:`Cluster`, described by a small JSON file in the cluster's own directory, so that any process of the session can
attach to it by path alone.
"""

from __future__ import annotations

__all__ = ["Cluster", "ClusterSpec", "Power", "Provider"]

import enum
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from pvaffinity.clusterconfig import ClusterConfig
from pvaffinity.paths import write_whole
from pvaffinity.progress import Progress, quiet
from pvaffinity.versions import Release


class Power(enum.StrEnum):
    """What a provider can do beyond creating and deleting; tests name them in ``@pytest.mark.requires(...)``."""

    RESTART_KUBELET = "restart-kubelet"
    COMPONENT_FLAGS = "component-flags"
    COMPONENT_LOGS = "component-logs"
    CONTAINER_IO = "container-io"
    NODE_LABELS = "node-labels"
    KUBECTL = "kubectl"


@dataclass(frozen=True)
class ClusterSpec:
    """What is wanted."""

    provider: str
    release: Release
    config: ClusterConfig

    @property
    def id(self) -> str:
        """Short and unique within a session, and what a test id shows: ``1.37-gate-on``."""
        return f"{self.release.minor}-{self.config.name}"


@dataclass(frozen=True)
class Cluster:
    """A cluster that exists.

    Attributes:
        name: unique on this machine.
        directory: everything the provider keeps for it; removed with the cluster.
        kubeconfig: an administrator's kubeconfig, owned by us.
        kubectl: path of a kubectl of the cluster's version, or None.
        powers: see :class:`Power`.
        logs: directory in which component logs can be read while the cluster lives, or None.
        notes: facts for the report, such as start-up seconds.
    """

    name: str
    provider: str
    version: str
    config: str
    directory: Path
    kubeconfig: Path
    kubectl: Path | None
    powers: frozenset[Power]
    logs: Path | None = None
    notes: dict[str, str] = field(default_factory=dict, compare=False)

    def save(self) -> None:
        """Write ``cluster.json`` into the cluster's directory, whole or not at all."""
        data = asdict(self)
        for key in ("directory", "kubeconfig", "kubectl", "logs"):
            data[key] = str(data[key]) if data[key] else None
        data["powers"] = sorted(self.powers)
        write_whole(self.directory / "cluster.json", json.dumps(data, indent=1))

    @classmethod
    def load(cls, directory: Path) -> Cluster:
        """Read what :meth:`save` wrote.

        Raises:
            OSError: there is no such file.
        """
        return cls.parse((directory / "cluster.json").read_text(encoding="utf-8"))

    @classmethod
    def parse(cls, text: str) -> Cluster:
        """The cluster described by a ``cluster.json``."""
        data = json.loads(text)
        for key in ("directory", "kubeconfig", "kubectl", "logs"):
            data[key] = Path(data[key]) if data[key] else None
        data["powers"] = frozenset(Power(p) for p in data["powers"])
        return cls(**data)


class Provider(Protocol):
    """One way to have a cluster."""

    name: str

    def check(self, spec: ClusterSpec, progress: Progress = quiet) -> None:
        """Fail early, before anything is created.

        Raises:
            UserError: this machine cannot run the cluster; says what to do.
        """

    def create(self, spec: ClusterSpec, name: str, directory: Path, owner: int, progress: Progress = quiet) -> Cluster:
        """Create the cluster and return when it is usable: nodes Ready, ServiceAccounts there.

        Args:
            spec: what is wanted.
            name: unique on this machine.
            directory: exists, is the cluster's own, and holds nothing but the word of whose it is.
            owner: the process whose end ends the cluster, however it ends.
            progress: told what is going on.

        Raises:
            UserError: it did not start; says which part and shows the end of its log. Half a start is undone.
        """

    def delete(self, cluster: Cluster, progress: Progress = quiet) -> None:
        """Delete the cluster and everything it kept. Deleting twice is not an error."""

    def disown(self, cluster: Cluster) -> None:
        """Let the cluster outlive its owner: somebody asked to keep it. ``pvaffinity clean --all`` removes it."""

    def stop_kubelet(self, cluster: Cluster, node: str) -> None:
        """Stop one node's kubelet (Power.RESTART_KUBELET); containers keep running."""

    def start_kubelet(self, cluster: Cluster, node: str) -> None:
        """Start it again, with its state kept."""

    def stop_component(self, cluster: Cluster, component: str) -> None:
        """Stop a control-plane component (Power.COMPONENT_FLAGS); returns when it has ended.

        Args:
            cluster: whose.
            component: one of :data:`pvaffinity.flags.COMPONENTS`. Stopping one that is stopped is not an error.

        Raises:
            UserError: there is no such component, or it did not end.
        """

    def start_component(
        self, cluster: Cluster, component: str, flags: Mapping[str, str | None] = MappingProxyType({})
    ) -> None:
        """Start it; returns when the new process answers that it is healthy (budget: component).

        One that runs with other flags is stopped first; one that runs with these is left alone.

        Args:
            cluster: whose.
            component: one of :data:`pvaffinity.flags.COMPONENTS`.
            flags: set over those of the configuration for this run only, see :func:`pvaffinity.flags.with_flags`;
                with none, it runs as configured.

        Raises:
            UserError: it exited, such as for a wrong flag, or is not healthy; shows the end of its log. Starting it
                without flags then makes it what it was.
        """

    def ailing(self, cluster: Cluster, *of: str) -> str:
        """Which of its components are known to be dead, in one line; "" where none is, or nothing is known.

        Args:
            cluster: whose.
            of: ask for these only, such as ``etcd`` or ``kubelet-worker2``.
        """

    def export_logs(self, cluster: Cluster, destination: Path) -> None:
        """Copy component logs into a directory (Power.COMPONENT_LOGS)."""
