"""Places found on any cluster by one rule, and the labels that nodes lack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pvaffinity import node_labels
from pvaffinity.affinity import REGION, ZONE, disk_key
from pvaffinity.clusterconfig import load_config
from pvaffinity.errors import ApiError, UserError
from pvaffinity.objects import Obj, Ref
from pvaffinity.places import NotSupportedError, Places
from pvaffinity.topology import Node, Topology

SHIPPED = ("gate-off", "gate-on", "gate-apiserver-only")


def node(name: str, zone: str = "", region: str = "", *disks: str, **labels: str) -> Node:
    all_labels = {ZONE: zone, REGION: region, **{disk_key(d): "available" for d in disks}, **labels}
    return Node(name, {key: value for key, value in all_labels.items() if value})


def places(*nodes: Node) -> Places:
    return Places(Topology.of(nodes))


@pytest.mark.parametrize("name", SHIPPED)
def test_places_of_our_own_clusters(name: str) -> None:
    """The project's own configurations give every place, and the very zones their comments name."""
    workers = [Node(n.name, n.labels) for n in load_config(name).nodes if n.role == "worker"]
    found = places(*workers)
    assert (found.region, found.home, found.other) == ("us-east1", "us-east1-b", "us-east1-c")
    assert (found.nowhere, found.abroad, found.bare.name) == ("us-east1-z", "us-west1-a", "worker5")
    assert (found.gen1, found.gen2) == ("gen1", "gen2")
    assert found.missing() == []


def test_what_is_missing_is_said() -> None:
    """A cluster without topology labels has a bare node and nothing else; each lack has its own words."""
    assert places(node("a"), node("b")).missing() == [
        "no two schedulable zones in one region",
        "no two disk generations (provider.com/disktype.<name>=available) on nodes of their own",
    ]
    one = places(node("a", "z1", "r"), node("b", "z2", "r"))
    assert one.missing()[:2] == [
        "no schedulable zone in a second region",
        "no schedulable node without zone and region labels",
    ]
    with pytest.raises(NotSupportedError, match="second region"):
        _ = one.abroad


def test_only_schedulable_nodes_count() -> None:
    """A zone whose only node is cordoned is no place for a test's pod."""
    away = Node("b", {ZONE: "z2", REGION: "r"}, schedulable=False)
    with pytest.raises(NotSupportedError, match="no two schedulable zones"):
        _ = places(node("a", "z1", "r"), away).region


def test_a_zone_name_of_two_regions_is_passed_over() -> None:
    """Zones are told apart by name in an affinity, so that a name that two regions share is of no use."""
    shared = [node("a", "0", "r1"), node("b", "0", "r2"), node("c", "1", "r2"), node("d", "2", "r2")]
    found = places(*shared)
    assert (found.region, found.home, found.other) == ("r2", "1", "2")
    with pytest.raises(NotSupportedError, match="second region"):
        _ = found.abroad


def test_no_node_is_in_the_zone_that_is_nowhere() -> None:
    """A zone that happens to have the name made up for nowhere is avoided, also if its node is not schedulable."""
    found = places(node("a", "r-x", "r"), node("b", "r-y", "r"), Node("c", {ZONE: "r-z"}, schedulable=False))
    assert found.nowhere == "r-z1"
    assert places(node("a")).nowhere == "nowhere-z"


def test_nowhere_needs_a_node_that_would_take_the_pod_but_for_its_volume() -> None:
    """With every node tainted, a pod is kept out by more than its volume: there is no such place."""
    with pytest.raises(NotSupportedError, match="no schedulable node"):
        _ = places(Node("a", {ZONE: "z", REGION: "r"}, schedulable=False)).nowhere


def test_two_generations_on_one_node_tell_nothing_apart() -> None:
    """Generations count only if no node has both: else a pod could stay where it is."""
    with pytest.raises(NotSupportedError, match="disk generations"):
        _ = places(node("a", "z1", "r", "old", "new"), node("b", "z2", "r", "new")).gen1
    found = places(node("a", "z1", "r", "a", "b"), node("b", "z2", "r", "b", "c"))
    assert (found.gen1, found.gen2) == ("a", "c")


@pytest.mark.parametrize(
    "count,zones,missing",
    [
        (1, [], 2),
        (2, ["us-east1-b", "us-east1-c"], 2),
        (3, ["us-east1-b", "us-east1-c"], 1),
        (4, ["us-east1-b", "us-east1-c", "us-west1-a"], 0),
        (5, ["us-east1-b", "us-east1-c", "us-west1-a", "us-east1-d"], 0),
        (7, ["us-east1-b", "us-east1-c", "us-west1-a", "us-east1-d"], 0),
    ],
)
def test_free_nodes_get_the_labels_that_lack(count: int, zones: list[str], missing: int) -> None:
    """Free nodes get the topology of our own clusters, the most needed part first; the others stay as they are."""
    topology = Topology.of(node(f"n{i}") for i in range(count))
    added = node_labels.wanted(topology)
    assert [labels[ZONE] for labels in added.values()] == zones
    labelled = Topology.of(Node(n.name, {**n.labels, **added.get(n.name, {})}) for n in topology.nodes)
    assert len(Places(labelled).missing()) == missing


def test_a_topology_that_is_there_is_kept() -> None:
    """Where zones are there, no node's zone is touched: disk generations are added, and free nodes fill the rest."""
    zones = [node("a", "z1", "r"), node("b", "z2", "r"), node("c", "z2", "r")]
    assert node_labels.wanted(Topology.of(zones)) == {
        "a": {disk_key("gen1"): "available"},
        "b": {disk_key("gen2"): "available"},
    }
    added = node_labels.wanted(Topology.of([*zones, node("d"), node("e"), node("f")]))
    assert added["d"][ZONE] == "us-west1-a"
    assert added.keys() == {"a", "b", "d"}


def test_a_complete_topology_gets_no_label() -> None:
    """Where nothing is missing nothing is added, whatever nodes are free."""
    workers = [Node(n.name, n.labels) for n in load_config("gate-on").nodes if n.role == "worker"]
    assert node_labels.wanted(Topology.of([*workers, node("x"), node("y")])) == {}


def test_a_control_plane_is_not_free() -> None:
    """A control plane that takes pods gets no label; it may serve as the bare node."""
    head = node("head", **{"node-role.kubernetes.io/control-plane": "true"})
    added = node_labels.wanted(Topology.of([head, node("a"), node("b"), node("c")]))
    assert added.keys() == {"a", "b", "c"}


class _Nodes:
    """As much of the client as labelling needs."""

    def __init__(self, **labels: dict[str, str]) -> None:
        self.labels = labels
        self.fails_at = ""

    def list(self, kind: str) -> list[Obj]:
        return [{"metadata": {"name": name, "labels": dict(labels)}} for name, labels in self.labels.items()]

    def get(self, ref: Ref) -> Obj:
        if ref.name not in self.labels:
            raise ApiError(404, "NotFound", "gone")
        return {"metadata": {"name": ref.name, "labels": dict(self.labels[ref.name])}}

    def patch(self, ref: Ref, body: Any) -> None:
        if ref.name == self.fails_at:
            raise ApiError(403, "Forbidden", "no")
        labels = {**self.labels[ref.name], **body["metadata"]["labels"]}
        self.labels[ref.name] = {key: value for key, value in labels.items() if value is not None}


def test_labels_come_off_again(tmp_path: Path) -> None:
    """Every node has the labels it had before, also if only some of them could be put on."""
    nodes = _Nodes(a={"old": "1"}, b={}, c={"other": "2"})
    before = {name: dict(labels) for name, labels in nodes.labels.items()}
    nodes.fails_at = "b"
    with pytest.raises(ApiError):
        node_labels.put_on(nodes, {"a": {ZONE: "z"}, "b": {ZONE: "y"}}, "s1", tmp_path / "m")  # type: ignore[arg-type]
    assert nodes.labels["a"] == {"old": "1", ZONE: "z", node_labels.SESSION: "s1"}
    nodes.fails_at = ""
    assert node_labels.take_off(nodes, tmp_path / "m") == []  # type: ignore[arg-type]
    assert nodes.labels == before
    assert node_labels.take_off(nodes, tmp_path / "m") == []  # type: ignore[arg-type]


def test_what_somebody_else_changed_meanwhile_stays(tmp_path: Path) -> None:
    """A label that was changed since is not ours any more; a node that is gone took its labels along."""
    nodes = _Nodes(a={}, b={})
    node_labels.put_on(nodes, {"a": {ZONE: "z"}, "b": {ZONE: "y"}}, "s1", tmp_path / "m")  # type: ignore[arg-type]
    nodes.labels["a"][ZONE] = "real"
    del nodes.labels["b"]
    kept = node_labels.take_off(nodes, tmp_path / "m")  # type: ignore[arg-type]
    assert kept == [f"a: {ZONE}=real"]
    assert nodes.labels == {"a": {ZONE: "real"}}


def test_two_sessions_do_not_label_the_same_cluster(tmp_path: Path) -> None:
    """A node that carries another session's labels stops the second one before it writes anything."""
    nodes = _Nodes(a={node_labels.SESSION: "s1"}, b={})
    with pytest.raises(UserError, match="labels of another session, s1"):
        node_labels.put_on(nodes, {"b": {ZONE: "y"}}, "s2", tmp_path / "m")  # type: ignore[arg-type]
    assert nodes.labels["b"] == {}
