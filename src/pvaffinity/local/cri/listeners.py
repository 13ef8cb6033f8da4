"""Answers on the addresses of pods, so that tcp and http probes see what they would see of a running container.

A container's declared TCP ports are open from its start to its end. The CRI does not name them; the kubelet writes
them into an annotation of the container (kubernetes, pkg/kubelet/kuberuntime/labels.go). Every HTTP/1 request is
answered 200, except ``/status/CODE``, which is answered with that code. Not answered: UDP, TLS, gRPC probes, ports that
are not declared, and pods of the host network, whose address is the node's.
"""

from __future__ import annotations

__all__ = ["PortListeners", "declared_ports"]

import asyncio
import contextlib
import http
import json
import logging
import re
from collections.abc import Iterable, Mapping

_PORTS_ANNOTATION = "io.kubernetes.container.ports"
_PATIENCE = 5.0  # seconds for a client to say what it wants
_STATUS = re.compile(rb"[A-Z]+ /status/([1-5]\d\d)[ ?]")
_LOG = logging.getLogger(__name__)


def declared_ports(annotations: Mapping[str, str]) -> list[int]:
    """TCP ports among the container's ``ports``; empty if the annotation is absent or cannot be read."""
    try:
        ports = json.loads(annotations.get(_PORTS_ANNOTATION, "[]"))
        return sorted({int(p["containerPort"]) for p in ports if p.get("protocol", "TCP") == "TCP"})
    except (ValueError, KeyError, TypeError, AttributeError):
        return []


class PortListeners:
    """The open ports of one container."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []

    async def open(self, address: str, ports: Iterable[int]) -> None:
        """Listen; a port that cannot be had (taken by another container of the pod) is reported on stderr."""
        for port in ports:
            try:
                self._servers.append(await asyncio.start_server(_answer, address, port, limit=8192))
            except OSError as error:
                _LOG.warning("nothing answers on %s:%d: %s", address, port, error.strerror)

    def close(self) -> None:
        """Stop listening; connections being answered are left to end."""
        for server in self._servers:
            server.close()
        self._servers.clear()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError, TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            request = await reader.readline()
            if request:
                while (await reader.readline()).strip():
                    pass
                writer.write(_response(request))
                await writer.drain()
    writer.close()


def _response(request: bytes) -> bytes:
    wanted = _STATUS.match(request)
    code = int(wanted[1]) if wanted else 200
    phrase = http.HTTPStatus(code).phrase if code in set(http.HTTPStatus) else "Simulated"
    body = b"simulated\n"
    head = f"HTTP/1.1 {code} {phrase}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + (b"" if request.startswith(b"HEAD ") else body)
