"""The provider kind: Kubernetes in containers, through pytest-kind's ``KindCluster``; nothing else imports pytest-kind.

``KindCluster`` works in a process of its own (see :mod:`pvaffinity.providers.kind_run`), in the cluster's directory
and with absolute paths: it writes to the working directory, inherits standard output to kind, and would download an
old kind where it is given none. Its kubeconfig is the cluster's own for creation *and* deletion, so that kind never
touches the user's.
"""

from __future__ import annotations

__all__ = ["KindProvider"]

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from pvaffinity.api import TRANSPORT_ERRORS, Api
from pvaffinity.clusterconfig import GATE
from pvaffinity.engine import Engine, EngineError, require
from pvaffinity.errors import ApiError, UserError
from pvaffinity.local.owner import Owner, remove_tree
from pvaffinity.paths import write_whole
from pvaffinity.progress import Progress, quiet
from pvaffinity.providers import kind_components, kind_document, kind_logs, kind_nodes, kind_run, kind_setup
from pvaffinity.providers.base import Cluster, ClusterSpec, Power
from pvaffinity.providers.kind_setup import Kind, NodeImage
from pvaffinity.waiting import WaitError

_POWERS = {
    Power.RESTART_KUBELET,
    Power.COMPONENT_FLAGS,
    Power.COMPONENT_LOGS,
    Power.CONTAINER_IO,
    Power.NODE_LABELS,
}
_SLOW_BOOT = ("could not find a log line", "timed out waiting for the condition", "context deadline exceeded")


class KindProvider:
    """Clusters in containers.

    Args:
        image: use this node image, instead of the official one or ours.
        kind: use this kind, instead of the one on PATH.
        kubectl: use this kubectl, instead of the node's.
    """

    name = "kind"

    def __init__(self, *, image: str | None = None, kind: Path | None = None, kubectl: Path | None = None) -> None:
        self.image = image
        self.kind = kind
        self.kubectl = kubectl

    def check(self, spec: ClusterSpec, progress: Progress = quiet) -> None:
        """See :meth:`pvaffinity.providers.base.Provider.check`; pulls the node image if the engine lacks it.

        Raises:
            UserError: no engine, no kind, no node image, or a machine that is too small.
        """
        spec.config.check_release(spec.release)
        engine = require()
        kind_setup.find_kind(self.kind)
        image = kind_setup.choose_image(engine, spec.release, self.image)
        kind_setup.check_image(engine, image, spec.release)
        if not image.present:
            kind_setup.pull(engine, image, spec.release, progress)
        kind_setup.check_machine(engine, len(spec.config.nodes))  # last: a reservation does not outlast a long pull

    def create(self, spec: ClusterSpec, name: str, directory: Path, owner: int, progress: Progress = quiet) -> Cluster:
        """See :meth:`pvaffinity.providers.base.Provider.create`; tried once more if the machine was merely slow.

        Raises:
            UserError: kind failed; shows the end of its output and says where the nodes' logs are.
        """
        engine, kind = require(), kind_setup.find_kind(self.kind)
        image = kind_setup.choose_image(engine, spec.release, self.image)
        directory = directory.resolve()
        kind_setup.check_name(engine, name)
        by, started = Owner.of(owner), time.monotonic()
        by.claim(directory)
        write_whole(
            directory / "kind.json",
            json.dumps({"name": name, "kind": str(kind.binary), "engine": dict(engine.environment)}),
        )
        kind_run.wrap(kind.binary, directory)
        (directory / "kind.yaml").write_text(
            kind_document.document_for(spec.config, image, engine, spec.release), encoding="utf-8"
        )
        nodes = _nodes(spec, name)
        try:
            self._make(engine, kind, image, name, directory, progress)
            version, gates = self._await_nodes(engine, kind, spec, name, directory, progress)
            kind_setup.check_version(image.reference, version, spec.release)
            kubectl = self.kubectl or kind_nodes.kubectl(engine, nodes[0], directory)
            seconds = time.monotonic() - started
            progress(f"kind: {len(nodes)} nodes are Ready, Kubernetes {version}, {seconds:.1f} s")
            progress(f"kind: {GATE}: {gates}")
            cluster = Cluster(
                name=name,
                provider=self.name,
                version=version,
                config=spec.config.name,
                directory=directory,
                kubeconfig=directory / "admin.kubeconfig",
                kubectl=kubectl,
                powers=frozenset(_POWERS | ({Power.KUBECTL} if kubectl else set())),
                notes={
                    "start-up": f"{seconds:.1f} s",
                    "image": image.reference,
                    "engine": f"{engine.name} {engine.version}",
                    "kind": kind.version,
                    "gates": gates,
                },
            )
            cluster.save()
        except BaseException as error:
            try:
                self._delete(engine, name, directory)
            except (UserError, OSError) as left:  # the directory stays, for whoever tries again
                kind_logs.add(error, f"{left}, or: pvaffinity clean")
            else:
                remove_tree(directory)
            raise
        return cluster

    def delete(self, cluster: Cluster, progress: Progress = quiet) -> None:
        """See :meth:`pvaffinity.providers.base.Provider.delete`; ends a creation that is still going on.

        Raises:
            UserError: the engine does not answer, or refuses; the directory is kept, so that it can be tried again.
        """
        if not cluster.directory.exists():
            return
        with contextlib.suppress(OSError, ValueError, TypeError):
            kind_run.stop(Owner.load(cluster.directory / "creator.json"))
        if (cluster.directory / "kind.json").exists():
            self._delete(kind_setup.engine_of(cluster.directory), cluster.name, cluster.directory)
        remove_tree(cluster.directory)

    def disown(self, cluster: Cluster) -> None:
        """See :meth:`pvaffinity.providers.base.Provider.disown`."""
        write_whole(cluster.directory / "owner.json", json.dumps({"kept": True}))

    def ailing(self, cluster: Cluster, *of: str) -> str:
        """See :meth:`pvaffinity.providers.base.Provider.ailing`; nothing is known here."""
        return ""

    def stop_kubelet(self, cluster: Cluster, node: str) -> None:
        """See :meth:`pvaffinity.providers.base.Provider.stop_kubelet`."""
        kind_nodes.kubelet(cluster, node, "stop")

    def start_kubelet(self, cluster: Cluster, node: str) -> None:
        """See :meth:`pvaffinity.providers.base.Provider.start_kubelet`; returns when it runs, before it is Ready."""
        kind_nodes.kubelet(cluster, node, "start")

    def stop_component(self, cluster: Cluster, component: str) -> None:
        """See :meth:`pvaffinity.providers.base.Provider.stop_component`."""
        kind_components.stop(cluster, component)

    def start_component(
        self, cluster: Cluster, component: str, flags: Mapping[str, str | None] = MappingProxyType({})
    ) -> None:
        """See :meth:`pvaffinity.providers.base.Provider.start_component`."""
        kind_components.start(cluster, component, flags)

    def export_logs(self, cluster: Cluster, destination: Path) -> None:
        """See :meth:`pvaffinity.providers.base.Provider.export_logs`: what ``kind export logs`` writes.

        Raises:
            UserError: kind could not.
        """
        destination.mkdir(parents=True, exist_ok=True)
        engine, kind = kind_setup.engine_of(cluster.directory), kind_setup.find_kind(self.kind)
        try:
            kind_logs.export(engine, kind, cluster.name, destination)
        except EngineError as error:
            raise UserError(f"the logs of {cluster.name} could not be had: {error}", "see the logs by hand") from error

    def _make(
        self, engine: Engine, kind: Kind, image: NodeImage, name: str, directory: Path, progress: Progress
    ) -> None:
        for attempt in (1, 2):
            code = self._start(engine, image, name, directory, progress)
            if code == 0:
                return
            text = (directory / "kind.log").read_text(errors="replace", encoding="utf-8")
            if attempt == 2 or not any(sign in text for sign in _SLOW_BOOT):
                raise kind_logs.failure(engine, kind, name, "kind could not create the cluster", text)
            progress("kind: the nodes were slow to start; trying once more")
            self._delete(engine, name, directory)

    def _start(self, engine: Engine, image: NodeImage, name: str, directory: Path, progress: Progress) -> int:
        arguments = ("create", name, str(directory / "admin.kubeconfig"), str(directory / "kind"))
        creation = kind_run.Creation(engine, directory, *arguments, image.reference, str(directory / "kind.yaml"))
        return creation.wait(progress)

    def _await_nodes(
        self, engine: Engine, kind: Kind, spec: ClusterSpec, name: str, directory: Path, progress: Progress
    ) -> tuple[str, str]:
        progress("kind: waiting for nodes")
        api, nodes = Api.from_kubeconfig(directory / "admin.kubeconfig"), _nodes(spec, name)
        try:
            return kind_nodes.await_ready(api, nodes), kind_nodes.gates(api, spec.config, nodes[0])
        except UserError as error:
            if kept := kind_logs.keep(
                engine, kind, name, (directory / "kind.log").read_text(errors="replace", encoding="utf-8")
            ):
                kind_logs.add(error, f"the nodes' logs: {kept}")
            raise
        except (WaitError, ApiError, *TRANSPORT_ERRORS) as error:
            text = f"{(directory / 'kind.log').read_text(errors='replace', encoding='utf-8')}\n{error}"
            raise kind_logs.failure(engine, kind, name, "the cluster's nodes did not become Ready", text) from None

    def _delete(self, engine: Engine, name: str, directory: Path) -> None:
        """Delete the cluster's containers, through pytest-kind if it works, else by their label."""
        label = f"{kind_setup.CLUSTER_LABEL}={name}"
        arguments = ("delete", name, str(directory / "admin.kubeconfig"), str(directory / "kind"))
        if (directory / "kind").exists():
            with contextlib.suppress(OSError):
                kind_run.run(engine, directory, *arguments)
        try:
            for _ in range(3):
                left = engine.containers(label)
                if not left:
                    return
                with contextlib.suppress(EngineError):  # "removal is already in progress": somebody else is at it
                    engine.run("rm", "--force", "--volumes", *left)
            left = engine.containers(label)
        except EngineError as error:
            raise UserError(f"the containers of {name} could not be deleted: {error}", "pvaffinity clean") from error
        if left:
            raise UserError(
                f"{len(left)} containers of {name} could not be deleted",
                f"{engine.name} rm --force --volumes {' '.join(c[:12] for c in left)}",
            )


def _nodes(spec: ClusterSpec, name: str) -> list[str]:
    """What kind names the nodes; the control plane's is the first that is asked for kubectl."""
    nodes = sorted(spec.config.nodes, key=lambda node: node.role)
    return [f"{name}-{node.name}" for node in nodes]


def _help(parent: str, verb: str, name: str, kubeconfig: str, kind: str, *more: str) -> int:
    """The helper process: call pytest-kind, and undo what it did if we are told to stop or our parent is gone."""
    if verb == "create":
        kind_run.die_with_parent(int(parent))
    from pytest_kind import KindCluster

    image, document = more if more else (None, None)
    cluster = KindCluster(name, kubeconfig=Path(kubeconfig), image=image, kind_path=Path(kind))
    if verb == "delete":
        cluster.delete()
        return 0
    try:
        cluster.create(document)
    except SystemExit:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        kind_run.end_group(os.getpgrp(), but=os.getpid())
        cluster.delete()
        raise
    except Exception as error:  # noqa: BLE001 - the log has kind's own words; pytest-kind adds a stack trace
        print(f"pytest-kind: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_help(*sys.argv[1:]))
