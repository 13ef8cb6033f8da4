"""The nodes of a kind cluster: that they are usable, their kubectl, and their kubelets."""

from __future__ import annotations

__all__ = ["await_ready", "gates", "kubectl", "kubelet"]

import contextlib
import json
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import yaml

from pvaffinity.api import Api
from pvaffinity.budgets import Budget
from pvaffinity.clusterconfig import GATE, ClusterConfig
from pvaffinity.engine import Engine, EngineError
from pvaffinity.errors import UserError
from pvaffinity.objects import Ref
from pvaffinity.providers import kind_setup
from pvaffinity.providers.base import Cluster
from pvaffinity.usable import await_nodes, exists
from pvaffinity.waiting import until

_READY = Budget("node-ready", 120, "patience", "a node becomes Ready", "image unpacking and CNI on a busy machine")


def await_ready(api: Api, nodes: Sequence[str]) -> str:
    """Wait until every node can take pods and ServiceAccounts are made; returns the server's version, such as 1.37.2.

    Raises:
        WaitError: one did not get there.
        ApiError: the server refused.
    """
    await_nodes(api, nodes, _READY)
    version: str = json.loads(api.text("/version"))["gitVersion"]
    return version.removeprefix("v")


def gates(api: Api, config: ClusterConfig, node: str) -> str:
    """Read the gate from the flags and files of every component, and see that it is what the configuration says.

    Args:
        api: an administrator's.
        config: the cluster's.
        node: its control plane's.

    Returns:
        Such as ``kube-apiserver on, kube-controller-manager default, …``.

    Raises:
        UserError: a component runs with another setting.
    """
    found: dict[str, bool | None] = {}
    for component in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        pod = until(api, Ref("Pod", f"{component}-{node}", "kube-system"), exists, _READY)
        flags = " ".join(pod["spec"]["containers"][0]["command"])
        match = re.search(rf"--feature-gates=\S*\b{GATE}=(true|false)", flags)
        found[component] = match[1] == "true" if match else None
    kubelet = yaml.safe_load(api.get(Ref("ConfigMap", "kubelet-config", "kube-system"))["data"]["kubelet"])
    found["kubelet"] = (kubelet.get("featureGates") or {}).get(GATE)
    for component, state in found.items():
        own = (config.kubelet.get("featureGates") or {}).get(GATE) if component == "kubelet" else None
        wanted = config.gate_for(component) if own is None else own
        if state is not wanted:
            raise UserError(
                f"{component} runs with {GATE} {_word(state)}, but {config.path.name} says {_word(wanted)}",
                "see what else sets it: a patch in the document, or the node image",
            )
    return ", ".join(f"{component} {_word(state)}" for component, state in found.items())


def _word(state: bool | None) -> str:
    return "default" if state is None else "on" if state else "off"


def kubelet(cluster: Cluster, node: str, verb: str) -> None:
    """Have a node's systemd stop or start its kubelet.

    Raises:
        UserError: there is no such node, or systemd refuses.
    """
    try:
        kind_setup.engine_of(cluster.directory).run("exec", node, "systemctl", verb, "kubelet")
    except EngineError as error:
        raise UserError(
            f"the kubelet of {node} could not be told to {verb}: {error}",
            f"see its nodes: kubectl --kubeconfig {shlex.quote(str(cluster.kubeconfig))} get nodes",
        ) from error


def kubectl(engine: Engine, node: str, directory: Path) -> Path | None:
    """The node's own kubectl, which is of the cluster's version; None where it would not run here."""
    target = directory / "kubectl"
    if not engine.local:
        return None
    with contextlib.suppress(EngineError, OSError):
        engine.run("cp", f"{node}:/usr/bin/kubectl", str(target))
        if os.access(target, os.X_OK):
            return target
    return None
