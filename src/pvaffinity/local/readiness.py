"""How a daemon shows that it is ready, and requests with a client certificate that ask it."""

from __future__ import annotations

__all__ = ["Readiness", "https_request"]

import socket
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Readiness:
    """How a daemon shows that it is ready.

    Attributes:
        kind: ``tcp`` (something listens on ``target``, host:port), ``line`` (its log has the text ``target``),
            ``https`` (GET of the URL ``target`` answers 200) or ``started`` (it runs).
        ca, cert, key: files for ``https``.
    """

    kind: str = "started"
    target: str = ""
    ca: str = ""
    cert: str = ""
    key: str = ""

    def seen(self) -> bool:
        """Look once at its port (of a daemon that is told by its log, there is nothing to see)."""
        if self.kind == "tcp":
            host, _, port = self.target.rpartition(":")
            try:
                socket.create_connection((host, int(port)), timeout=0.2).close()
            except OSError:
                return False
            return True
        if self.kind == "https":
            host, _, path = self.target.removeprefix("https://").partition("/")
            return https_request(self, "GET", host, f"/{path}")[0] == 200
        return self.kind == "started"


def https_request(
    access: Readiness,
    method: str,
    host: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = 1.0,
) -> tuple[int, bytes]:
    """One request with a client certificate; ``(0, b"")`` where nothing answers."""
    import http.client  # after the supervisor has forked: not every part of it needs them
    import ssl

    try:
        name, _, port = host.rpartition(":")
        socket.create_connection((name, int(port)), timeout=timeout).close()  # refused? then spare the rest
        context = ssl.create_default_context(cafile=access.ca)
        if access.cert:
            context.load_cert_chain(access.cert, access.key)
        connection = http.client.HTTPSConnection(host, timeout=timeout, context=context)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()
    except (OSError, http.client.HTTPException):
        return 0, b""
