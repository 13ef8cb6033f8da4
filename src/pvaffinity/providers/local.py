"""The embedded provider: real Kubernetes components and kubelets over simulated containers, without root or Docker.

Every cluster has a supervisor process of its own (:mod:`pvaffinity.local.supervisor`), which ends with the cluster's
owner, however that ends.
"""

from __future__ import annotations

__all__ = ["LocalProvider"]

import contextlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pvaffinity.budgets import BUDGETS
from pvaffinity.errors import UserError
from pvaffinity.flags import check_component, with_flags
from pvaffinity.local import control
from pvaffinity.local.binaries import ensure
from pvaffinity.local.certificates import kubeconfig
from pvaffinity.local.launch import Launch
from pvaffinity.local.node import plan_nodes
from pvaffinity.local.owner import Owner, remove_tree
from pvaffinity.local.plan import files_of, plan, write_files
from pvaffinity.local.preflight import check_machine
from pvaffinity.local.processes import end_processes
from pvaffinity.progress import Progress, quiet
from pvaffinity.providers.base import Cluster, ClusterSpec, Power

_POWERS = frozenset(
    {Power.RESTART_KUBELET, Power.COMPONENT_FLAGS, Power.COMPONENT_LOGS, Power.NODE_LABELS, Power.KUBECTL}
)
_ANSWER = 20.0  # seconds for an answer, beside what is waited for: ending a process takes 5 at most


class LocalProvider:
    """Clusters in namespaces of this machine.

    Args:
        binaries: a directory with the Kubernetes binaries, instead of cache, download and build.
    """

    name = "local"

    def __init__(self, binaries: Path | None = None) -> None:
        self.binaries = binaries

    def check(self, spec: ClusterSpec, progress: Progress = quiet) -> None:
        """See :meth:`pvaffinity.providers.base.Provider.check`.

        Raises:
            UserError: no user namespaces, too little memory or disk, or a gate the release does not know.
        """
        spec.config.check_release(spec.release)
        check_machine(len(spec.config.nodes))

    def create(self, spec: ClusterSpec, name: str, directory: Path, owner: int, progress: Progress = quiet) -> Cluster:
        """See :meth:`pvaffinity.providers.base.Provider.create`.

        Raises:
            UserError: a part did not start; half a start is undone.
        """
        spec.config.check_release(spec.release)
        binaries = ensure(spec.release, named=self.binaries, progress=progress)
        directory = directory.resolve()
        nodes = plan_nodes(spec.config, directory / "nodes")
        by = Owner.of(owner)
        try:
            for node in nodes:
                node.state.mkdir(parents=True, mode=0o700)
            (directory / "logs").mkdir()
            by.claim(directory)
            wanted = plan(spec.config, directory, nodes, binaries.path, by)
            (directory / "spec.json").write_text(json.dumps(wanted, indent=1), encoding="utf-8")
        except OSError as error:
            remove_tree(directory)
            raise UserError(
                f"{directory} cannot be used: {error.strerror}",
                "make room there, or set PVAFFINITY_RUN to another place",
            ) from error
        launch = Launch(directory, spec.config, binaries.path)
        try:
            launch.start()
            port = launch.port()
            authority = write_files(spec.config, directory, nodes)
            launch.tell("certificates")
            admin = directory / "admin.kubeconfig"
            client = files_of(directory)
            kubeconfig(admin, f"https://127.0.0.1:{port}", authority.ca, client.admin, f"pvaffinity-{name}")
            seconds = launch.wait(progress)
            cluster = Cluster(
                name=name,
                provider=self.name,
                version=spec.release.version,
                config=spec.config.name,
                directory=directory,
                kubeconfig=admin,
                kubectl=binaries.kubectl,
                powers=_POWERS,
                logs=directory / "logs",
                notes={"start-up": f"{seconds:.1f} s", "binaries": binaries.source},
            )
            cluster.save()
        except BaseException:
            launch.undo()
            raise
        finally:
            launch.close()
        return cluster

    def delete(self, cluster: Cluster, progress: Progress = quiet) -> None:
        """See :meth:`pvaffinity.providers.base.Provider.delete`."""
        try:
            control.ask(cluster.directory, "stop")
        except control.NoAnswerError:
            end_processes(cluster.directory)
        remove_tree(cluster.directory)

    def disown(self, cluster: Cluster) -> None:
        """See :meth:`pvaffinity.providers.base.Provider.disown`; ``pvaffinity clean --all`` removes it."""
        with contextlib.suppress(control.NoAnswerError):
            control.ask(cluster.directory, "disown")
            (cluster.directory / "owner.json").write_text(json.dumps({"kept": True}), encoding="utf-8")

    def stop_kubelet(self, cluster: Cluster, node: str) -> None:
        """See :meth:`pvaffinity.providers.base.Provider.stop_kubelet`; returns when it has ended.

        Raises:
            UserError: there is no such node, or no such cluster any more.
        """
        self._order(cluster, "kubelet-stop", node=node)

    def start_kubelet(self, cluster: Cluster, node: str) -> None:
        """See :meth:`pvaffinity.providers.base.Provider.start_kubelet`; returns when it runs, before it is Ready.

        Raises:
            UserError: there is no such node, or no such cluster any more.
        """
        self._order(cluster, "kubelet-start", node=node)

    def stop_component(self, cluster: Cluster, component: str) -> None:
        """See :meth:`pvaffinity.providers.base.Provider.stop_component`.

        Raises:
            UserError: there is no such component, or no such cluster any more, or it does not answer.
        """
        check_component(component)
        self._order(cluster, "component-stop", component=component)

    def start_component(
        self, cluster: Cluster, component: str, flags: Mapping[str, str | None] = MappingProxyType({})
    ) -> None:
        """See :meth:`pvaffinity.providers.base.Provider.start_component`; its port and certificates stay the same.

        Raises:
            UserError: it exited or was not healthy in time, or there is no such component or cluster.
        """
        check_component(component)
        try:
            daemons = json.loads((cluster.directory / "spec.json").read_text(encoding="utf-8"))["daemons"]
        except OSError as error:
            raise UserError(f"cluster {cluster.name} has ended", "start another one") from error
        configured = next(daemon["argv"] for daemon in daemons if daemon["name"] == component)
        argv, seconds = with_flags(configured, flags), BUDGETS["component"].seconds
        self._order(cluster, "component-start", component=component, argv=argv, seconds=seconds)

    def ailing(self, cluster: Cluster, *of: str) -> str:
        """See :meth:`pvaffinity.providers.base.Provider.ailing`: what its supervisor says of each process."""
        try:
            daemons = control.ask(cluster.directory, "status", timeout=5).get("daemons")
        except control.SlowError as error:  # of a busy machine, say: nothing is known of a single component
            return "" if of else f"the supervisor of cluster {cluster.name} does not answer: {error}"
        except control.NoSupervisorError:
            daemons = None
        if daemons is None:
            return f"cluster {cluster.name} has ended"
        dead = ", ".join(name for name, daemon in daemons.items() if not daemon["running"] and name in (of or daemons))
        return f"not running in cluster {cluster.name}: {dead}" if dead else ""

    @staticmethod
    def _order(cluster: Cluster, order: str, **about: Any) -> None:
        try:
            answer = control.ask(cluster.directory, order, timeout=about.get("seconds", 0.0) + _ANSWER, **about)
        except control.SlowError as error:
            log = cluster.directory / "logs" / "supervisor.log"
            raise UserError(f"cluster {cluster.name} does not answer: {error}", f"see {log}; try again") from error
        except control.NoSupervisorError as error:
            raise UserError(f"cluster {cluster.name} has ended: {error}", "start another one") from error
        if "error" in answer:
            raise UserError(
                answer["error"], answer.get("fix", "see the supervisor's log"), detail=answer.get("log", "")
            )

    def export_logs(self, cluster: Cluster, destination: Path) -> None:
        """See :meth:`pvaffinity.providers.base.Provider.export_logs`: one file per component, and the pods' logs."""
        destination.mkdir(parents=True, exist_ok=True)
        for log in sorted((cluster.directory / "logs").glob("*.log")):
            shutil.copy2(log, destination / log.name)
        for node in sorted((cluster.directory / "nodes").glob("*")):
            if any((node / "logs").glob("*")):
                shutil.copytree(node / "logs", destination / "pods" / node.name, dirs_exist_ok=True)
