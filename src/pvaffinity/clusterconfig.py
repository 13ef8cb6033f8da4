"""Cluster configurations: kind documents (``kind.x-k8s.io/v1alpha4``) as data that every provider can read.

A key this project does not know is refused by name instead of being passed over in silence: a misspelt
``featureGates`` would otherwise start a cluster that proves nothing.
"""

from __future__ import annotations

__all__ = ["GATE", "ClusterConfig", "NodeSpec", "load_config"]

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pvaffinity.errors import UserError
from pvaffinity.versions import Release, clusterconfigs_dir

GATE = "MutablePVNodeAffinity"
"""The feature gate this project is about."""

_TOP = ("kind", "apiVersion", "name", "nodes", "networking", "featureGates", "runtimeConfig", "kubeadmConfigPatches")
_NODE = ("role", "image", "labels", "kubeadmConfigPatches")
_COMPONENTS = {
    "apiServer": "kube-apiserver",
    "controllerManager": "kube-controller-manager",
    "scheduler": "kube-scheduler",
}


@dataclass(frozen=True)
class NodeSpec:
    """One node of the document; names follow kind: ``control-plane``, ``worker``, ``worker2``, … with a prefix."""

    name: str
    role: str
    labels: Mapping[str, str]


@dataclass(frozen=True)
class ClusterConfig:
    """A parsed kind document.

    Attributes:
        name: the file's name without ending, such as ``gate-on``.
        path: where it was read.
        document: the whole document, for kind itself.
        nodes: in the document's order.
        feature_gates: for every component.
        runtime_config: API groups to turn on or off.
        component_args: flags of single components, by binary name, from the ClusterConfiguration patches.
        kubelet: fields of KubeletConfiguration patches.
    """

    name: str
    path: Path
    document: Mapping[str, Any] = field(repr=False, hash=False)
    nodes: tuple[NodeSpec, ...] = field(hash=False)
    feature_gates: Mapping[str, bool] = field(hash=False)
    runtime_config: Mapping[str, str] = field(hash=False)
    component_args: Mapping[str, Mapping[str, str]] = field(hash=False)
    kubelet: Mapping[str, Any] = field(hash=False)

    def gate_for(self, component: str, gate: str = GATE) -> bool | None:
        """The gate as the document sets it for one binary, such as ``kube-apiserver``; None where it says nothing."""
        flags = self.component_args.get(component, {}).get("feature-gates", "")
        own = dict(pair.split("=", 1) for pair in flags.split(",") if "=" in pair)
        if gate in own:
            return own[gate].lower() == "true"
        return self.feature_gates.get(gate)

    def check_release(self, release: Release) -> None:
        """Refuse a document that sets the gate on a release that does not know it.

        Raises:
            UserError: the API server of that release would exit with "unrecognized feature gate".
        """
        if not release.has_gate and any(self.gate_for(c) is not None for c in _COMPONENTS.values()):
            raise UserError(
                f"{self.path.name} sets {GATE}, which Kubernetes {release} does not know",
                "use --kubernetes-version 1.35 or later, or --cluster-config gate-off",
            )


def load_config(name_or_path: str, directory: Path | None = None) -> ClusterConfig:
    """Read a configuration by name (``gate-on``, from ``clusterconfigs/``) or by path.

    Raises:
        UserError: no such configuration, no YAML, or a key the project does not know.
    """
    directory = directory or clusterconfigs_dir()
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        path = directory / f"{name_or_path}.yaml"
    if not path.is_file():
        known = sorted(p.stem for p in directory.glob("*.yaml"))
        close = difflib.get_close_matches(name_or_path, known, 1)
        raise UserError(
            f"no cluster configuration {name_or_path!r}" + (f"; did you mean {close[0]}?" if close else ""),
            f"use one of {', '.join(known)}, or the path of a kind document",
        )
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}", f"make it readable: chmod u+r {path}") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path} is not readable YAML: {str(error).splitlines()[0]}", f"correct it: {path}") from error
    return _parse(document, path)


def _parse(document: Any, path: Path) -> ClusterConfig:
    _keys(document, _TOP, path, "")
    if document.get("kind") != "Cluster" or document.get("apiVersion") != "kind.x-k8s.io/v1alpha4":
        raise UserError(
            f"{path} is not a kind cluster document",
            "begin it with 'kind: Cluster' and 'apiVersion: kind.x-k8s.io/v1alpha4'",
        )
    args: dict[str, dict[str, str]] = {}
    kubelet: dict[str, Any] = {}
    for text in document.get("kubeadmConfigPatches") or ():
        _patch(text, path, args, kubelet)
    gates = document.get("featureGates") or {}
    for gate, on in gates.items():
        if not isinstance(on, bool):
            raise UserError(f"{path}: featureGates.{gate} is {on!r}", "a feature gate is true or false")
    return ClusterConfig(
        name=path.stem,
        path=path,
        document=document,
        nodes=_nodes(document.get("nodes") or [{"role": "control-plane"}], path),
        feature_gates=gates,
        runtime_config={k: str(v).lower() for k, v in (document.get("runtimeConfig") or {}).items()},
        component_args=args,
        kubelet=kubelet,
    )


def _nodes(entries: Any, path: Path) -> tuple[NodeSpec, ...]:
    nodes, counts = [], {"control-plane": 0, "worker": 0}
    for number, entry in enumerate(entries):
        _keys(entry, _NODE, path, f"nodes[{number}].")
        role = entry.get("role", "control-plane")
        if role not in counts:
            raise UserError(f"{path}: nodes[{number}].role is {role!r}", "a role is control-plane or worker")
        counts[role] += 1
        suffix = str(counts[role]) if counts[role] > 1 else ""
        labels = {k: str(v) for k, v in (entry.get("labels") or {}).items()}
        nodes.append(NodeSpec(f"{role}{suffix}", role, labels))
    if counts["control-plane"] != 1:
        raise UserError(f"{path} has {counts['control-plane']} control-plane nodes", "give it exactly one")
    return tuple(nodes)


def _patch(text: Any, path: Path, args: dict[str, dict[str, str]], kubelet: dict[str, Any]) -> None:
    try:
        patch = yaml.safe_load(text)
    except (yaml.YAMLError, AttributeError) as error:
        raise UserError(f"{path}: a kubeadmConfigPatch is not YAML", "correct it, or remove it") from error
    kind = patch.get("kind") if isinstance(patch, dict) else None
    if kind == "KubeletConfiguration":
        kubelet.update({k: v for k, v in patch.items() if k not in ("kind", "apiVersion")})
        return
    if kind != "ClusterConfiguration":
        raise UserError(
            f"{path}: kubeadmConfigPatches of kind {kind!r} are not understood",
            "use ClusterConfiguration (apiServer, controllerManager, scheduler: extraArgs) or KubeletConfiguration",
        )
    _keys(patch, ("kind", "apiVersion", *_COMPONENTS), path, "kubeadmConfigPatches: ")
    for component, binary in _COMPONENTS.items():
        section = patch.get(component) or {}
        _keys(section, ("extraArgs",), path, f"kubeadmConfigPatches: {component}.")
        extra = section.get("extraArgs") or {}
        # v1beta3 is a map, v1beta4 a list of {name, value}.
        pairs = extra.items() if isinstance(extra, dict) else [(e["name"], e["value"]) for e in extra]
        args.setdefault(binary, {}).update({k: str(v) for k, v in pairs})


def _keys(section: Any, known: tuple[str, ...], path: Path, where: str) -> None:
    if not isinstance(section, dict):
        raise UserError(
            f"{path}: {where.rstrip('.') or 'the document'} is not a mapping", f"known keys: {', '.join(known)}"
        )
    for key in section:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, 1)
            raise UserError(
                f"{path}: unknown key {where}{key}" + (f"; did you mean {close[0]}?" if close else ""),
                f"known keys here: {', '.join(known)}",
            )
