"""The places a check needs, found on any cluster by one rule: a home zone, another one in its region, one abroad.

On the project's own clusters they are the zones of ``clusterconfigs/``: us-east1-b at home, us-east1-c as the other
one, us-west1-a abroad. On a cluster that came with a topology of its own they are what it has; what it lacks raises
:class:`NotSupportedError` where a check asks for it.
"""

from __future__ import annotations

__all__ = ["NotSupportedError", "Places"]

from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations

from pvaffinity.affinity import disk_key
from pvaffinity.topology import Node, Topology

_DISK = disk_key("")


class NotSupportedError(Exception):
    """The cluster lacks what a check needs. The check has no verdict there; it has not failed."""


@dataclass(frozen=True)
class Places:
    """Places by the role they play in a check; "first" is by name, and only schedulable nodes count.

    A zone whose name occurs in two regions is passed over: an affinity to it would not say which one is meant.
    """

    topology: Topology

    @property
    def region(self) -> str:
        """The first region with two zones.

        Raises:
            NotSupportedError: there is none.
        """
        if (region := self._region()) is None:
            raise NotSupportedError("no two schedulable zones in one region")
        return region

    @property
    def home(self) -> str:
        """The zone volumes start in: the region's first one."""
        return self._zones()[self.region][0]

    @property
    def other(self) -> str:
        """The region's second zone."""
        return self._zones()[self.region][1]

    @property
    def nowhere(self) -> str:
        """The name of a zone that has no node, where some node would take a pod but for its volume.

        Raises:
            NotSupportedError: none would; what keeps pods out then is not the volume, or not it alone.
        """
        if not self.topology.schedulable:
            raise NotSupportedError("no schedulable node: all are cordoned or tainted")
        taken = {node.zone for node in self.topology.nodes}
        near = self._region() or "nowhere"
        return next(name for n in range(len(taken) + 1) if (name := f"{near}-z{n or ''}") not in taken)

    @property
    def abroad(self) -> str:
        """The first zone of another region.

        Raises:
            NotSupportedError: there is none.
        """
        home = self.region
        for region, zones in self._zones().items():
            if region != home and zones:
                return zones[0]
        raise NotSupportedError("no schedulable zone in a second region")

    @property
    def bare(self) -> Node:
        """The first node with neither zone nor region.

        Raises:
            NotSupportedError: there is none.
        """
        if not self.topology.bare:
            raise NotSupportedError("no schedulable node without zone and region labels")
        return self.topology.bare[0]

    @property
    def gen1(self) -> str:
        """A disk generation, by its name in the node label ``provider.com/disktype.<name>=available``.

        Raises:
            NotSupportedError: there are no two generations that are available on different nodes only.
        """
        return self._generations()[0]

    @property
    def gen2(self) -> str:
        """Another disk generation, available on none of the nodes that have the first one."""
        return self._generations()[1]

    def missing(self) -> list[str]:
        """What is not there, in words; nothing where every check finds its places."""
        found = []
        for name in ("region", "abroad", "bare", "gen1"):
            try:
                getattr(self, name)
            except NotSupportedError as lack:
                found.append(str(lack))
        return list(dict.fromkeys(found))

    def _region(self) -> str | None:
        return next((region for region, zones in self._zones().items() if len(zones) > 1), None)

    def _zones(self) -> dict[str, list[str]]:
        """The zones of every region, in order of their names."""
        found: dict[str, set[str]] = defaultdict(set)
        for node in self.topology:
            if node.region and node.zone:
                found[node.region].add(node.zone)
        twice = {zone for a, b in combinations(found.values(), 2) for zone in a & b}
        return {region: sorted(found[region] - twice) for region in sorted(found)}

    def _generations(self) -> tuple[str, str]:
        keys = {key for node in self.topology for key, value in node.labels.items() if value == "available"}
        names = sorted(key.removeprefix(_DISK) for key in keys if key.startswith(_DISK) and key != _DISK)
        for first, second in combinations(names, 2):
            if not set(self.topology.where(disk=first)) & set(self.topology.where(disk=second)):
                return first, second
        raise NotSupportedError(f"no two disk generations ({_DISK}<name>=available) on nodes of their own")
