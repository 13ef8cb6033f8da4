"""Nodes and their selection."""

from __future__ import annotations

from typing import Any

import pytest

from pvaffinity.affinity import REGION, ZONE, disk_key, in_region, in_zone, where
from pvaffinity.topology import Node, Topology


def node(name: str, zone: str | None = None, region: str | None = None, disk: str | None = None, **spec: Any) -> Node:
    labels = {ZONE: zone, REGION: region, **({disk_key(disk): "available"} if disk else {})}
    metadata = {"name": name, "labels": {k: v for k, v in labels.items() if v}}
    return Node.from_object({"metadata": metadata, "spec": spec})


def taint(effect: str) -> dict[str, Any]:
    return {"taints": [{"key": "k", "effect": effect}]}


B = node("b", "east-b", "east", "gen1")
C = node("c", "east-c", "east", "gen2", **taint("PreferNoSchedule"))
W = node("w", "west-a", "west")
BARE = node("x")
CORDONED = node("y", "east-b", "east", unschedulable=True)
CONTROL_PLANE = node("a", "east-b", "east", **taint("NoSchedule"))
EVICTING = node("z", "east-b", "east", **taint("NoExecute"))
TOPOLOGY = Topology.of([W, B, C, CORDONED, BARE, EVICTING, CONTROL_PLANE])


def test_nodes_without_labels_or_spec() -> None:
    """A node object may lack labels, spec and taints."""
    assert Node.from_object({"metadata": {"name": "n"}}) == Node("n", {})


def test_selection_is_of_schedulable_nodes() -> None:
    """Cordoned and tainted nodes are known but never selected; a preference is no taint in this sense."""
    assert [n.name for n in TOPOLOGY.nodes] == list("abcwxyz")
    assert tuple(TOPOLOGY) == TOPOLOGY.where() == (B, C, W, BARE)


def test_where() -> None:
    """Zone, region and disk generation narrow the choice together."""
    assert TOPOLOGY.where(zone="east-b") == (B,)
    assert TOPOLOGY.where(region="east") == (B, C)
    assert TOPOLOGY.where(region="east", disk="gen2") == (C,)
    assert TOPOLOGY.where(zone="east-b", disk="gen2") == ()
    assert TOPOLOGY.bare == (BARE,)


def test_matching() -> None:
    """A volume's affinity picks the nodes that the oracle admits."""
    assert TOPOLOGY.matching(in_zone("east-b")) == (B,)
    assert TOPOLOGY.matching(in_region("east") | where(ZONE, "DoesNotExist")) == (B, C, BARE)
    assert TOPOLOGY.matching(None) == (B, C, W, BARE)


def test_other_than() -> None:
    """The rest of the nodes is those not named."""
    assert TOPOLOGY.other_than(TOPOLOGY.matching(in_region("east"))) == (W, BARE)
    assert len({B, C, W}) == 3


def test_labels_of() -> None:
    """Labels can be looked up of any node, and of no other."""
    assert TOPOLOGY.labels_of("y")[ZONE] == "east-b"
    with pytest.raises(KeyError):
        TOPOLOGY.labels_of("nosuch")
