"""The supervisor's control socket: JSON lines in, JSON lines out, from any number of clients."""

from __future__ import annotations

__all__ = ["Orders", "answer"]

import contextlib
import json
import selectors
import socket
from collections.abc import Callable
from typing import Any


def answer(client: socket.socket, message: dict[str, Any]) -> None:
    """Send one line; a client that has gone is no error."""
    with contextlib.suppress(OSError):
        client.sendall(json.dumps(message).encode() + b"\n")


class Orders:
    """Accepts clients on a listening socket and hands on each whole order.

    Args:
        selector: whose entries carry a callable as data.
        control: the listening socket.
        obey: gets the client and an order that has the key ``do``; whoever obeys answers.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        control: socket.socket,
        obey: Callable[[socket.socket, dict[str, Any]], None],
    ) -> None:
        self._selector, self._control, self._obey = selector, control, obey
        self._buffers: dict[socket.socket, bytes] = {}
        selector.register(control, selectors.EVENT_READ, self._accept)

    def _accept(self) -> None:
        client, _ = self._control.accept()
        client.settimeout(5)
        self._buffers[client] = b""
        self._selector.register(client, selectors.EVENT_READ, lambda: self._read(client))

    def _read(self, client: socket.socket) -> None:
        try:
            data = client.recv(4096)
        except OSError:
            data = b""
        if not data:
            self._hang_up(client)
            return
        *lines, self._buffers[client] = (self._buffers[client] + data).split(b"\n")
        for line in lines:
            try:
                order = json.loads(line)
                known = isinstance(order, dict) and isinstance(order.get("do"), str)
            except ValueError:
                known = False
            if known:
                self._obey(client, order)
            else:
                answer(client, {"error": "an order is one JSON object with the key do"})

    def _hang_up(self, client: socket.socket) -> None:
        self._selector.unregister(client)
        del self._buffers[client]
        client.close()

    def hang_up_all(self) -> None:
        """Close every client's connection, which tells those who wait that something has ended."""
        for client in list(self._buffers):
            self._hang_up(client)
