"""The nodes of a cluster as tests see them: labels, and whether the scheduler may place an ordinary pod there."""

from __future__ import annotations

__all__ = ["Node", "Topology"]

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from pvaffinity.affinity import REGION, ZONE, Affinity, disk_key
from pvaffinity.api import Api
from pvaffinity.objects import Obj


@dataclass(frozen=True)
class Node:
    """One node. ``schedulable``: neither cordoned nor tainted against pods that tolerate nothing."""

    name: str
    labels: Mapping[str, str]
    schedulable: bool = True

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def zone(self) -> str | None:
        """Its zone label, None where it has none."""
        return self.labels.get(ZONE)

    @property
    def region(self) -> str | None:
        """Its region label, None where it has none."""
        return self.labels.get(REGION)

    @classmethod
    def from_object(cls, obj: Obj) -> Node:
        """Read a Node object."""
        spec = obj.get("spec") or {}
        taints = {taint["effect"] for taint in spec.get("taints") or ()}
        free = not spec.get("unschedulable", False) and not taints & {"NoSchedule", "NoExecute"}
        return cls(obj["metadata"]["name"], obj["metadata"].get("labels") or {}, free)


@dataclass(frozen=True)
class Topology:
    """All nodes, in order of their names. Every selection is a tuple of *schedulable* nodes."""

    nodes: tuple[Node, ...]

    @classmethod
    def read(cls, api: Api) -> Topology:
        """Read the cluster's nodes.

        Raises:
            ApiError: the identity may not list nodes.
        """
        return cls.of(Node.from_object(obj) for obj in api.list("Node"))

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> Topology:
        """A topology of these nodes."""
        return cls(tuple(sorted(nodes, key=lambda node: node.name)))

    def __iter__(self) -> Iterator[Node]:
        return iter(self.schedulable)

    @property
    def schedulable(self) -> tuple[Node, ...]:
        """The nodes on which an ordinary pod can be placed."""
        return tuple(node for node in self.nodes if node.schedulable)

    def where(self, zone: str | None = None, region: str | None = None, disk: str | None = None) -> tuple[Node, ...]:
        """Nodes of a zone, a region and with a disk generation available; what is None does not matter."""
        wanted = {ZONE: zone, REGION: region, **({disk_key(disk): "available"} if disk else {})}
        needed = {key: value for key, value in wanted.items() if value is not None}
        return tuple(n for n in self if all(n.labels.get(key) == value for key, value in needed.items()))

    @property
    def bare(self) -> tuple[Node, ...]:
        """Nodes that have neither a zone nor a region."""
        return tuple(node for node in self if node.zone is None and node.region is None)

    def matching(self, affinity: Affinity | None) -> tuple[Node, ...]:
        """Nodes that a volume's affinity admits; all of them where it has none."""
        return tuple(node for node in self if affinity is None or affinity.matches(node.labels))

    def other_than(self, nodes: Collection[Node]) -> tuple[Node, ...]:
        """Nodes that are none of these."""
        return tuple(node for node in self if node not in nodes)

    def labels_of(self, name: str) -> Mapping[str, str]:
        """The labels of a node by name.

        Raises:
            KeyError: there is no such node.
        """
        return {node.name: node.labels for node in self.nodes}[name]
