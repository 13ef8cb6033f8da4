"""Which of the processes that share a port is listening on it, and which one has accepted a connection.

By the kernel's own tables (``/proc/net/tcp``, ``/proc/PID/fd``), so only for processes of our network namespace.
"""

from __future__ import annotations

__all__ = ["accepted", "listens"]

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def listens(pid: int, port: int) -> bool:
    """Whether the process listens on the TCP port; not whether it also accepts."""
    return any(found.status == "LISTEN" and found.laddr.port == port for found in _sockets(pid))


def accepted(pid: int, client: tuple[Any, ...]) -> bool:
    """Whether the process has the other end of the connection whose own end is ``client`` (host, port, …)."""
    host, port = client[:2]
    return any(
        found.raddr and (found.raddr.ip.removeprefix("::ffff:"), found.raddr.port) == (host, port)
        for found in _sockets(pid)
    )


def _sockets(pid: int) -> Sequence[Any]:
    import psutil  # only where a port is shared

    try:
        return psutil.Process(pid).net_connections("tcp")
    except psutil.Error:
        return ()
