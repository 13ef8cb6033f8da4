"""The provider existing: somebody else's cluster, used as it is and left as it was.

Everything a session makes there carries a label of that session, so that whatever is left when it ends, however it
ends, can be found and removed. Nodes get labels only where that was allowed, and lose them again.
"""

from __future__ import annotations

__all__ = ["ExistingProvider", "Target"]

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from pvaffinity import kubeconfig, node_labels
from pvaffinity.api import TRANSPORT_ERRORS, Api
from pvaffinity.conditions import is_gone
from pvaffinity.errors import ApiError, UserError
from pvaffinity.kubeconfig import Kubeconfig
from pvaffinity.local.bincache import Cache, Item
from pvaffinity.local.owner import Owner, remove_tree
from pvaffinity.objects import Obj, Ref, ref_of
from pvaffinity.paths import expanded, write_whole
from pvaffinity.places import Places
from pvaffinity.progress import Progress, quiet
from pvaffinity.providers.base import Cluster, ClusterSpec, Power
from pvaffinity.topology import Topology
from pvaffinity.versions import Release, load_versions
from pvaffinity.waiting import WaitError, until

_MADE = (
    "Namespace",
    "ClusterRoleBinding",
    "ClusterRole",
    "CertificateSigningRequest",
    "StorageClass",
    "VolumeAttributesClass",
    "CSIDriver",
    "PersistentVolume",
)
"""Kinds without a namespace that a session may make; the others go with theirs. Volumes last: claims hold them."""


@dataclass(frozen=True)
class Target:
    """Which cluster is meant, and what may be done to it.

    Attributes:
        kubeconfig: a file; without it, the files that ``KUBECONFIG`` names.
        context: one of its contexts; without it, the current one.
        allow_node_labels: whether nodes may get the labels that the suite lacks.
        kubectl: a kubectl to use.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    allow_node_labels: bool = False
    kubectl: Path | None = None

    def document(self) -> Obj:
        """A kubeconfig with the one context that is meant.

        Raises:
            UserError: no file is named, one cannot be used, or there is no such context.
        """
        return self.read().only(self.context)

    def read(self) -> Kubeconfig:
        """The files that are meant, as one.

        Raises:
            UserError: no file is named, or one cannot be used.
        """
        files = [expanded(self.kubeconfig)] if self.kubeconfig else kubeconfig.named_by()
        if not files:
            raise UserError("no cluster is named", "name its kubeconfig: --kubeconfig FILE, or set KUBECONFIG")
        return kubeconfig.read(files)


class ExistingProvider:
    """One cluster that is there already.

    Args:
        target: which one.
    """

    name = "existing"

    def __init__(self, target: Target | None = None) -> None:
        self.target = target or Target()

    def check(self, spec: ClusterSpec, progress: Progress = quiet) -> None:
        """Nothing is left to check: version, gate and rights were measured before the session's plan was made."""

    def create(self, spec: ClusterSpec, name: str, directory: Path, owner: int, progress: Progress = quiet) -> Cluster:
        """Take the cluster over for a session: see its nodes, and label them if that was allowed. Creates nothing.

        Raises:
            UserError: the kubeconfig cannot be used, or the nodes carry another session's labels.
        """
        by = Owner.of(owner)
        by.claim(directory)
        write_whole(directory / "existing.json", json.dumps({"name": name}))
        document = self.target.document()
        config = kubeconfig.write_private(document, directory / "admin.kubeconfig")
        cluster = Cluster(name, self.name, spec.release.version, spec.config.name, directory, config, None, frozenset())
        try:
            api = Api.from_kubeconfig(config)
            topology = Topology.read(api)
            if self.target.allow_node_labels:
                topology = _label(api, topology, cluster, progress)
            missing = Places(topology).missing()
            for lack in missing:
                progress(f"not supported here: {lack}")
            kubectl = self.target.kubectl or _kubectl(spec.release)
            powers = {Power.KUBECTL} if kubectl else set()
            powers |= {Power.NODE_LABELS} if self.target.allow_node_labels else set()
            notes = {"context": document["current-context"], "nodes": f"{len(topology.schedulable)} schedulable"}
            notes |= {"not supported": "; ".join(missing)} if missing else {}
            labelled = [node.name for node in topology.nodes if node.labels.get(node_labels.SESSION) == name]
            notes |= {"labelled nodes": ", ".join(labelled)} if labelled else {}
            return Cluster(
                name=name,
                provider=self.name,
                version=spec.release.version,
                config=spec.config.name,
                directory=directory,
                kubeconfig=config,
                kubectl=kubectl,
                powers=frozenset(powers),
                notes=notes,
            )
        except (ApiError, *TRANSPORT_ERRORS) as error:
            self.delete(cluster)
            raise UserError(f"the cluster's nodes cannot be used: {error}", "use an administrator's context") from error
        except BaseException:
            self.delete(cluster)
            raise

    def delete(self, cluster: Cluster, progress: Progress = quiet) -> None:
        """Remove what the session has left on the cluster, and restore its nodes' labels. The cluster stays.

        Raises:
            UserError: something could not be removed; the directory is kept, so that it can be tried again.
        """
        if not cluster.kubeconfig.exists():
            remove_tree(cluster.directory)
            return
        again = "pvaffinity clean"
        try:
            api = Api.from_kubeconfig(cluster.kubeconfig)
            _sweep(api, cluster.name, progress)
            kept = node_labels.take_off(api, cluster.directory / "labels.json")
        except (ApiError, WaitError, *TRANSPORT_ERRORS) as error:
            what = f"what session {cluster.name} made could not be removed: {str(error).splitlines()[0]}"
            raise UserError(what, f"when the cluster answers again: {again}", detail=str(error)) from error
        for label in kept:
            progress(f"left as somebody changed it: node {label}")
        remove_tree(cluster.directory)

    def disown(self, cluster: Cluster) -> None:
        """There is nothing to keep: the cluster outlives every session."""

    def ailing(self, cluster: Cluster, *of: str) -> str:
        """See :meth:`pvaffinity.providers.base.Provider.ailing`; nothing is known here."""
        return ""

    def stop_kubelet(self, cluster: Cluster, node: str) -> None:
        """Not ours to stop.

        Raises:
            UserError: always.
        """
        raise UserError("kubelets of an existing cluster are not ours to stop", "use another provider")

    def start_kubelet(self, cluster: Cluster, node: str) -> None:
        """Not ours to start.

        Raises:
            UserError: always.
        """
        raise UserError("kubelets of an existing cluster are not ours to start", "use another provider")

    def stop_component(self, cluster: Cluster, component: str) -> None:
        """Not ours to stop.

        Raises:
            UserError: always.
        """
        raise UserError("components of an existing cluster are not ours to stop", "use another provider")

    def start_component(
        self, cluster: Cluster, component: str, flags: Mapping[str, str | None] = MappingProxyType({})
    ) -> None:
        """Not ours to start.

        Raises:
            UserError: always.
        """
        raise UserError("components of an existing cluster are not ours to start", "use another provider")

    def export_logs(self, cluster: Cluster, destination: Path) -> None:
        """Component logs of an existing cluster are out of reach; nothing is written."""


def _label(api: Api, topology: Topology, cluster: Cluster, progress: Progress) -> Topology:
    added = node_labels.wanted(topology)
    if not added:
        return topology
    node_labels.put_on(api, added, cluster.name, cluster.directory / "labels.json")
    for node, labels in added.items():
        progress(f"node {node} is labelled for this session: {', '.join(f'{k}={v}' for k, v in labels.items())}")
    return Topology.read(api)


def _sweep(api: Api, session: str, progress: Progress) -> None:
    """Delete everything that carries the session's label and wait until it is gone.

    Raises:
        ApiError: the server refused.
        WaitError: something does not go.
    """
    found: list[Ref] = []
    for kind in _MADE:
        try:
            objects = api.list(kind, labels=f"{node_labels.SESSION}={session}")
        except ApiError as error:
            if error.code in (403, 404):  # nobody who may not even list them has made any
                continue
            raise
        found += [ref_of(obj) for obj in objects]
        for obj in objects:
            if "deletionTimestamp" not in obj["metadata"]:
                progress(f"removing {ref_of(obj)}")
                api.delete(ref_of(obj))
    for ref in found:
        until(api, ref, is_gone, "deletion")


def _kubectl(release: Release) -> Path | None:
    """A kubectl at most one minor version away, as Kubernetes' version skew policy allows; None if there is none."""
    for known in load_versions().releases:
        cached = Cache().find(Item("kubernetes", known.version, "kubectl"))
        if known.minor == release.minor and cached.state == "ok":
            return cached.path
    path = shutil.which("kubectl")
    if path is None:
        return None
    try:
        command = [path, "version", "--client", "-o", "json"]
        told = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", timeout=20, check=True
        ).stdout
        minor = int(re.sub(r"\D", "", json.loads(told)["clientVersion"]["minor"]))
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return None
    return Path(path) if abs(minor - release.key[1]) <= 1 else None
