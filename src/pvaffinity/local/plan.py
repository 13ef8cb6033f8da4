"""From a cluster configuration to what a supervisor needs: daemons with their order, nodes, and a directory's files."""

from __future__ import annotations

__all__ = ["MARKER", "STOP_FIRST", "environment", "files_of", "plan", "write_files"]

import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pvaffinity.clusterconfig import ClusterConfig
from pvaffinity.local import controlplane, network
from pvaffinity.local.certificates import SERVER_NAMES, Authority, Pair, kubeconfig
from pvaffinity.local.daemon import DaemonSpec
from pvaffinity.local.node import Node, write_state
from pvaffinity.local.owner import Owner
from pvaffinity.local.readiness import Readiness

MARKER = "PVAFFINITY_CLUSTER"
"""Set in the environment of every process of a cluster, to the cluster's directory: how leftovers are told."""

STOP_FIRST = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
"""Stopped in this order, then the kubelets and the simulator; etcd comes last."""

_INSIDE = f"https://127.0.0.1:{network.API_PORT}"


def environment(directory: Path) -> dict[str, str]:
    """The whole environment of a cluster's processes: no proxies, no surprises, and the marker."""
    kept = ("PATH", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")
    env = {name: os.environ[name] for name in kept if name in os.environ}
    env.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    return env | {"HOME": str(directory), MARKER: str(directory), "PYTHONDONTWRITEBYTECODE": "1"}


def files_of(directory: Path) -> controlplane.ServerFiles:
    """Where the certificates will be; they need not exist yet."""
    pki = directory / "pki"

    def pair(name: str, public: str = "crt") -> Pair:
        return Pair(pki / f"{name}.{public}", pki / f"{name}.key")

    return controlplane.ServerFiles(
        pair("ca"), pair("apiserver"), pair("kubelet-client"), pair("service-accounts", "pub"), pair("admin"), pki
    )


def plan(
    config: ClusterConfig, directory: Path, nodes: Sequence[Node], binary: Callable[[str], Path], owner: Owner
) -> dict[str, Any]:
    """What the supervisor reads from ``spec.json``."""
    files = files_of(directory)
    env = environment(directory)
    # The kubelets start while the API server does: they are Ready almost as soon as it is.
    daemons = [
        _daemon("etcd", binary("etcd"), controlplane.etcd(directory / "etcd"), (), "tcp", controlplane.ETCD, env),
        DaemonSpec(
            name="container-simulator",
            argv=(
                sys.executable, "-m", "pvaffinity.local.cri", str(directory / "simulator"),
                *(f"{node.name}={node.socket}" for node in nodes), "--listen",
            ),
            env=env,
            ready=Readiness("line", "serving"),
        ),
        DaemonSpec(
            name="kube-apiserver",
            argv=(str(binary("kube-apiserver")), *controlplane.api_server(config, files)),
            needs=("etcd", "certificates"),
            env=env,
            ready=Readiness("https", f"{_INSIDE}/readyz", *_admin(directory)),
        ),
        *(
            DaemonSpec(
                name=f"kubelet-{node.name}",
                argv=tuple(node.argv(binary("kubelet"))),
                needs=("container-simulator", "network", "certificates"),
                node=node.name,
                env=env,
            )
            for node in nodes
        ),
        DaemonSpec(
            name="kube-controller-manager",
            argv=(
                str(binary("kube-controller-manager")),
                *controlplane.controller_manager(config, files, files.directory / "kube-controller-manager.kubeconfig"),
            ),
            needs=("kube-apiserver",),
            env=env,
            ready=_answers("kube-controller-manager", files, 10257, "healthz"),
        ),
        DaemonSpec(
            name="kube-scheduler",
            argv=(
                str(binary("kube-scheduler")),
                *controlplane.scheduler(config, files, files.directory / "kube-scheduler.kubeconfig"),
            ),
            needs=("kube-apiserver",),
            env=env,
            ready=_answers("kube-scheduler", files, 10259, "readyz"),
        ),
    ]  # fmt: skip
    others = [d.name for d in daemons if d.name not in (*STOP_FIRST, "etcd")]
    access = Readiness("https", f"127.0.0.1:{network.API_PORT}", *_admin(directory))
    return {
        "owner": dataclasses.asdict(owner),
        "api": {"host": "127.0.0.1", "port": network.API_PORT},
        "daemons": [dataclasses.asdict(daemon) for daemon in daemons],
        "nodes": [
            {"name": n.name, "address": n.address, "state": str(n.state), "binary": str(binary("kubelet"))}
            for n in nodes
        ],
        "stop_order": [*STOP_FIRST, *others, "etcd"],
        "usable": {
            "access": dataclasses.asdict(access),
            "nodes": [node.name for node in nodes],
            "labels": {node.name: node.granted_labels for node in nodes},
        },
    }


def _daemon(
    name: str, program: Path, flags: Sequence[str], needs: tuple[str, ...], kind: str, target: str, env: dict[str, str]
) -> DaemonSpec:
    return DaemonSpec(name, (str(program), *flags), needs, env=env, ready=Readiness(kind, target))


def _answers(component: str, files: controlplane.ServerFiles, port: int, path: str) -> Readiness:
    """That a client of the API server is healthy; it makes its own certificate at its first start."""
    certificate = files.directory / component / f"{component}.crt"
    return Readiness("https", f"https://127.0.0.1:{port}/{path}", ca=str(certificate))


def _admin(directory: Path) -> tuple[str, str, str]:
    pki = directory / "pki"
    return str(pki / "ca.crt"), str(pki / "admin.crt"), str(pki / "admin.key")


def write_files(config: ClusterConfig, directory: Path, nodes: Sequence[Node]) -> Authority:
    """Certificates and kubeconfigs of every part, and each node's configuration."""
    authority = Authority(directory / "pki")
    authority.issue("apiserver", *SERVER_NAMES, user="kube-apiserver")
    authority.issue("kubelet-client", user="kube-apiserver-kubelet-client", group="system:masters")
    authority.issue("admin", user="kubernetes-admin", group="system:masters")
    authority.signing_key("service-accounts")
    for component in ("kube-controller-manager", "kube-scheduler"):
        client = authority.issue(component, user=f"system:{component}")
        kubeconfig(directory / "pki" / f"{component}.kubeconfig", _INSIDE, authority.ca, client, "local")
    for node in nodes:
        serving = authority.issue(f"serving-{node.name}", node.address, node.name, user=f"system:node:{node.name}")
        write_state(node, config, authority.ca, serving)
        client = authority.issue(f"node-{node.name}", user=f"system:node:{node.name}", group="system:nodes")
        kubeconfig(node.state / "kubeconfig", _INSIDE, authority.ca, client, "local")
    return authority
