"""Labels for the nodes of a cluster that is not ours: which ones the suite lacks, put on and taken off again.

What was there before is written down before anything is changed, so that it can be restored by whoever comes later.
Only labels that a node does not have are added: a zone that somebody else gave a node stays.
"""

from __future__ import annotations

__all__ = ["SESSION", "free", "put_on", "take_off", "wanted"]

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pvaffinity.affinity import REGION, ZONE, disk_key
from pvaffinity.api import Api
from pvaffinity.clusterconfig import load_config
from pvaffinity.errors import ApiError, UserError
from pvaffinity.objects import Ref
from pvaffinity.paths import write_whole
from pvaffinity.places import NotSupportedError, Places
from pvaffinity.topology import Node, Topology

SESSION = "pvaffinity.dev/session"
"""Label on everything a session made on a cluster that is not ours, nodes it labelled included; its value names it."""

_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
_DISK = disk_key("")

Labels = dict[str, str]


def free(topology: Topology) -> list[Node]:
    """Nodes that take ordinary pods, are no control plane, and have no zone, region or disk generation."""
    return [
        node
        for node in topology
        if not any(key in (ZONE, REGION, _CONTROL_PLANE) or key.startswith(_DISK) for key in node.labels)
    ]


def wanted(topology: Topology) -> dict[str, Labels]:
    """The labels to add, by node, so that checks find as many of their places as the nodes allow.

    They are those of the workers in ``clusterconfigs/gate-on.yaml``. Two zones of one region come first, then a node
    that stays bare, a zone abroad, and a third zone in the region.
    """
    workers = [dict(node.labels) for node in load_config("gate-on").nodes if node.role == "worker"]
    home, other, third, abroad, _ = workers
    nodes, added = free(topology), dict[str, Labels]()
    ours = not _has(topology, "region")
    if ours:
        if len(nodes) < 2:
            return {}
        added = {nodes.pop(0).name: home, nodes.pop(0).name: other}
    elif not _has(topology, "gen1"):
        places = Places(topology)
        for zone, labels in ((places.home, home), (places.other, other)):
            disk = {key: value for key, value in labels.items() if key.startswith(_DISK)}
            added[topology.where(zone=zone)[0].name] = disk
    if all(node in nodes or node.name in added for node in topology.bare):
        del nodes[-1:]  # one stays bare
    if nodes and not _has(topology, "abroad", added):
        region = Places(_with(topology, added)).region
        added[nodes.pop(0).name] = abroad if abroad[REGION] != region else third
    if nodes and ours:
        added[nodes.pop(0).name] = third
    return added


def put_on(api: Api, added: Mapping[str, Labels], session: str, memory: Path) -> None:
    """Add labels to nodes, and the session's own; what was there before is written to ``memory`` first.

    Raises:
        UserError: another session has labelled this cluster's nodes.
        ApiError: the server refused.
    """
    nodes = {node["metadata"]["name"]: node["metadata"].get("labels") or {} for node in api.list("Node")}
    for name, labels in nodes.items():
        if labels.get(SESSION, session) != session:
            raise UserError(
                f"node {name} carries the labels of another session, {labels[SESSION]}",
                "wait for its end; if it was killed: pvaffinity clean, where it ran",
            )
    add = {name: {**labels, SESSION: session} for name, labels in added.items()}
    before = {name: {key: nodes[name].get(key) for key in labels} for name, labels in add.items()}
    write_whole(memory, json.dumps({"added": add, "before": before}, indent=1))
    for name, labels in add.items():
        api.patch(Ref("Node", name), {"metadata": {"labels": labels}})


def take_off(api: Api, memory: Path) -> list[str]:
    """Restore what :func:`put_on` wrote down; answers what somebody else has changed meanwhile, which stays as it is.

    Raises:
        ApiError: the server refused.
    """
    if not memory.exists():
        return []
    known = json.loads(memory.read_text(encoding="utf-8"))
    kept = []
    for name, labels in known["added"].items():
        try:
            now = api.get(Ref("Node", name))["metadata"].get("labels") or {}
            ours = {key: known["before"][name][key] for key, value in labels.items() if now.get(key) == value}
            kept += [f"{name}: {key}={now[key]}" for key in labels if key in now and key not in ours]
            if ours:
                api.patch(Ref("Node", name), {"metadata": {"labels": ours}})
        except ApiError as error:
            if error.code != 404:  # a node that is gone took its labels along
                raise
    memory.unlink()
    return kept


def _has(topology: Topology, place: str, added: Mapping[str, Labels] | None = None) -> bool:
    try:
        getattr(Places(_with(topology, added or {})), place)
    except NotSupportedError:
        return False
    return True


def _with(topology: Topology, added: Mapping[str, Labels]) -> Topology:
    return Topology.of(replace(n, labels={**n.labels, **added.get(n.name, {})}) for n in topology.nodes)
