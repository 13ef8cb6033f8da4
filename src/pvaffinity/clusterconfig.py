"""Cluster configurations: kind documents (``kind.x-k8s.io/v1alpha4``) as data that every provider can read.

A key this project does not know is refused by name instead of being passed over in silence: a misspelt
``featureGates`` would otherwise start a cluster that proves nothing.
"""

from __future__ import annotations

__all__ = ["GATE", "ClusterConfig", "NodeSpec", "load_config"]

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pvaffinity.errors import UserError, did_you_mean
from pvaffinity.paths import expanded
from pvaffinity.shape import ShapeError, from_yaml, shaped
from pvaffinity.versions import Release, clusterconfigs_dir

GATE = "MutablePVNodeAffinity"
"""The feature gate this project is about."""

_TOP = ("kind", "apiVersion", "name", "nodes", "networking", "featureGates", "runtimeConfig", "kubeadmConfigPatches")
_NODE = ("role", "image", "labels", "kubeadmConfigPatches")
T = TypeVar("T")
_ENDINGS = (".yaml", ".yml", ".json")
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

    A path ends in .yaml, .yml or .json, or has a directory in it.

    Raises:
        UserError: no such configuration, no YAML, a key the project does not know, a misspelt gate of the
            project, or a value of a wrong type.
    """
    directory = directory or clusterconfigs_dir()
    path = expanded(Path(name_or_path))
    if path.suffix not in _ENDINGS and os.sep not in name_or_path:
        path = directory / f"{name_or_path}.yaml"
    if not path.is_file():
        known = sorted(p.stem for p in directory.glob("*.yaml"))
        raise UserError(
            f"no cluster configuration {name_or_path!r}{did_you_mean(name_or_path, known)}",
            f"use one of {', '.join(known)}, or the path of a kind document",
        )
    fix = f"correct it: {path}"
    try:
        document = from_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}", f"make it readable: chmod u+r {path}") from error
    except (UnicodeDecodeError, ShapeError) as error:
        raise UserError(f"{path} is not readable YAML: {error}", fix) from error
    try:
        return _parse(document, path)
    except ShapeError as error:
        raise UserError(f"{path}: {error}", fix) from error


def _parse(document: Any, path: Path) -> ClusterConfig:
    _keys(document, _TOP, path, "")
    if document.get("kind") != "Cluster" or document.get("apiVersion") != "kind.x-k8s.io/v1alpha4":
        raise UserError(
            f"{path} is not a kind cluster document",
            "begin it with 'kind: Cluster' and 'apiVersion: kind.x-k8s.io/v1alpha4'",
        )
    _optional(str, document, "name")
    _optional(dict[str, Any], document, "networking")
    args: dict[str, dict[str, str]] = {}
    kubelet: dict[str, Any] = {}
    for number, text in enumerate(_optional(list[str], document, "kubeadmConfigPatches")):
        _patch(text, path, f"kubeadmConfigPatches[{number}]", args, kubelet)
    gates = _optional(dict[str, bool], document, "featureGates")
    _gates(gates, path, "featureGates")
    for component, binary in _COMPONENTS.items():
        pairs = args.get(binary, {}).get("feature-gates", "").split(",")
        _gates((pair.partition("=")[0] for pair in pairs), path, f"{component}.extraArgs: feature-gates")
    return ClusterConfig(
        name=path.stem,
        path=path,
        document=document,
        nodes=_nodes(_optional(list[Any], document, "nodes") or [{"role": "control-plane"}], path),
        feature_gates=gates,
        runtime_config=_texts(document, "runtimeConfig"),
        component_args=args,
        kubelet=kubelet,
    )


def _gates(names: Iterable[str], path: Path, where: str) -> None:
    """Refuse a name that is almost the project's gate: read as another one, tests would expect the gate off.

    Kubernetes has no gate whose name is half as close. Misspelt names of others are left to the components.
    """
    for name in map(str.strip, names):
        if name != GATE and difflib.get_close_matches(name.lower(), [GATE.lower()], 1, 0.85):
            raise UserError(f"{path}: unknown feature gate {where}.{name}; did you mean {GATE}?", f"correct it: {path}")


def _nodes(entries: list[Any], path: Path) -> tuple[NodeSpec, ...]:
    nodes, counts = [], {"control-plane": 0, "worker": 0}
    for number, entry in enumerate(entries):
        where = f"nodes[{number}]."
        _keys(entry, _NODE, path, where)
        role = shaped(str, entry.get("role", "control-plane"), f"{where}role")
        if role not in counts:
            raise UserError(f"{path}: {where}role is {role!r}", "a role is control-plane or worker")
        _optional(str, entry, "image", where)
        _optional(list[str], entry, "kubeadmConfigPatches", where)
        counts[role] += 1
        suffix = str(counts[role]) if counts[role] > 1 else ""
        nodes.append(NodeSpec(f"{role}{suffix}", role, _texts(entry, "labels", where)))
    if counts["control-plane"] != 1:
        raise UserError(f"{path} has {counts['control-plane']} control-plane nodes", "give it exactly one")
    return tuple(nodes)


def _patch(text: str, path: Path, where: str, args: dict[str, dict[str, str]], kubelet: dict[str, Any]) -> None:
    try:
        patch = from_yaml(text)
    except ShapeError as error:
        raise UserError(f"{path}: {where} is not YAML: {error}", "correct it, or remove it") from error
    kind = patch.get("kind") if isinstance(patch, dict) else None
    if kind == "KubeletConfiguration":
        _gates(_optional(dict[str, bool], patch, "featureGates", f"{where}: "), path, f"{where}: featureGates")
        kubelet.update({k: v for k, v in patch.items() if k not in ("kind", "apiVersion")})
        return
    if kind != "ClusterConfiguration":
        raise UserError(
            f"{path}: kubeadmConfigPatches of kind {kind!r} are not understood",
            "use ClusterConfiguration (apiServer, controllerManager, scheduler: extraArgs) or KubeletConfiguration",
        )
    _keys(patch, ("kind", "apiVersion", *_COMPONENTS), path, f"{where}: ")
    _optional(str, patch, "apiVersion", f"{where}: ")
    for component, binary in _COMPONENTS.items():
        section = _optional(dict[str, Any], patch, component, f"{where}: ")
        _keys(section, ("extraArgs",), path, f"{where}: {component}.")
        args.setdefault(binary, {}).update(_arguments(section, f"{where}: {component}."))


def _arguments(section: Mapping[str, Any], where: str) -> Mapping[str, str]:
    """``extraArgs``: a map in kubeadm's v1beta3, a list of name and value in v1beta4."""
    extra = section.get("extraArgs")
    if not isinstance(extra, list):
        return _texts(section, "extraArgs", where)
    found: dict[str, str] = {}
    for number, each in enumerate(shaped(list[dict[str, Any]], extra, f"{where}extraArgs")):
        here = f"{where}extraArgs[{number}]."
        found[shaped(str, each.get("name"), f"{here}name")] = _text(each.get("value"), f"{here}value")
    return found


def _optional(form: type[T], section: Mapping[str, Any], key: str, where: str = "") -> T:
    """A field as its type; an empty one where it is left out or null, as kind reads it."""
    value = section.get(key)
    return shaped(form, value, f"{where}{key}") if value is not None else form()


def _texts(section: Mapping[str, Any], key: str, where: str = "") -> Mapping[str, str]:
    values = _optional(dict[str, Any], section, key, where)
    return {name: _text(value, f"{where}{key}.{name}") for name, value in values.items()}


def _text(value: Any, where: str) -> str:
    """A string, or what YAML makes of one without quotes, written as it was; a fraction may have been another (1.10).

    Raises:
        ShapeError: it is neither.
    """
    if isinstance(value, bool | int):
        return str(value).lower()
    return shaped(str, value, where)


def _keys(section: Any, known: tuple[str, ...], path: Path, where: str) -> None:
    if not isinstance(section, dict):
        raise UserError(
            f"{path}: {where.rstrip('.') or 'the document'} is not a mapping", f"known keys: {', '.join(known)}"
        )
    for key in section:
        if key not in known:
            raise UserError(
                f"{path}: unknown key {where}{key}{did_you_mean(str(key), known)}",
                f"known keys here: {', '.join(known)}",
            )
