"""The network inside a cluster's namespace: everything sits on ``lo``, nothing leaves the machine.

Node addresses are real addresses of the interface (a kubelet insists on it); the pods' range is a ``local`` route, so
that a simulated container can listen on its pod's address.
"""

from __future__ import annotations

__all__ = ["API_ADDRESS", "API_PORT", "POD_RANGE", "SERVICE_RANGE", "add_addresses", "loopback_up", "node_address"]

import fcntl
import socket
import struct
from collections.abc import Iterable

API_ADDRESS = "10.89.0.1"
"""What the API server advertises."""
API_PORT = 6443
POD_RANGE = "10.244.0.0/16"
SERVICE_RANGE = "10.96.0.0/16"

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1


def node_address(index: int) -> str:
    """The address of the node with this index, from 0; there is room for 60000."""
    return f"10.89.{1 + index // 250}.{1 + index % 250}"


def loopback_up() -> None:
    """Bring ``lo`` up, which brings 127.0.0.1 (netdevice(7)).

    Raises:
        OSError: refused.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


def add_addresses(addresses: Iterable[str]) -> None:
    """Give ``lo`` these addresses and the pods' range. Imports much: call it in a process that ends afterwards.

    Raises:
        Exception: netlink refused (pyroute2's NetlinkError).
    """
    from pyroute2 import IPRoute

    with IPRoute() as route:
        for address in addresses:
            route.addr("add", index=1, address=address, prefixlen=32)
        # table 255 and type local: what the kernel writes for an address of its own
        route.route("add", dst=POD_RANGE, oif=1, table=255, type="local", scope="host")
