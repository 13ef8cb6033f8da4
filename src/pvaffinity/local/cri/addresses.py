"""Addresses of pods: one /24 per node."""

from __future__ import annotations

__all__ = ["Addresses"]

import ipaddress

from pvaffinity.local.cri.errors import ResourceExhaustedError


class Addresses:
    """Gives out the host addresses of a network in turn, so that an address just freed is not the next to be used.

    Args:
        network: the pod network of all nodes, a /16 or wider.
        node: which /24 of it, from 0.
    """

    def __init__(self, network: ipaddress.IPv4Network, node: int) -> None:
        self._first = int(network.network_address) + 256 * node
        self._last = 0
        self._taken: set[str] = set()

    def take(self) -> str:
        """An address that nobody has.

        Raises:
            ResourceExhaustedError: all 254 are taken.
        """
        for step in range(1, 255):
            host = (self._last + step - 1) % 254 + 1
            address = str(ipaddress.IPv4Address(self._first + host))
            if address not in self._taken:
                self._last = host
                self._taken.add(address)
                return address
        raise ResourceExhaustedError("all 254 pod addresses of this node are taken")

    def give_back(self, address: str) -> None:
        """The pod is stopped; no error if the address was free."""
        self._taken.discard(address)
