"""Carries connections from a listening socket of the host's network into a cluster's private one."""

from __future__ import annotations

__all__ = ["forward"]

import asyncio
import contextlib
import socket
from typing import cast


class _Pipe(asyncio.Protocol):
    """One side of a connection; what it reads goes to its peer, no faster than the peer takes it."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.peer: _Pipe | None = None
        self.early: list[bytes] = []
        self.ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.write(data)
        else:
            self.early.append(data)

    def eof_received(self) -> bool:
        self.ended = True
        if self.peer is not None and self.peer.transport is not None and self.peer.transport.can_write_eof():
            with contextlib.suppress(OSError):
                self.peer.transport.write_eof()
        return True  # the other direction may still have something to say

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = True
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.close()

    def pause_writing(self) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.peer is not None and self.peer.transport is not None and not self.peer.transport.is_closing():
            self.peer.transport.resume_reading()


class _Accepted(_Pipe):
    def __init__(self, host: str, port: int, pending: set[asyncio.Task[None]]) -> None:
        super().__init__()
        self._target = (host, port)
        self._pending = pending

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        task = asyncio.get_running_loop().create_task(self._connect())
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def _connect(self) -> None:
        assert self.transport is not None
        try:
            transport, inside = await asyncio.get_running_loop().create_connection(_Pipe, *self._target)
        except OSError:
            self.transport.abort()  # the client sees a reset, as from a port where nothing listens
            return
        if self.transport.is_closing():
            transport.close()
            return
        inside.peer, self.peer = self, inside
        for data in self.early:
            transport.write(data)
        self.early.clear()
        if self.ended:
            transport.write_eof()


async def _serve(listener: socket.socket, host: str, port: int) -> None:
    pending: set[asyncio.Task[None]] = set()
    server = await asyncio.get_running_loop().create_server(lambda: _Accepted(host, port, pending), sock=listener)
    await server.serve_forever()


def forward(listener: socket.socket, host: str, port: int) -> None:
    """Accept on ``listener`` and connect each connection to ``host:port`` of this process's network, for ever."""
    asyncio.run(_serve(listener, host, port))
