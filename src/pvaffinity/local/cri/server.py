"""Serves nodes over gRPC, one Unix socket each."""

from __future__ import annotations

__all__ = ["NodeServer", "check_socket"]

import asyncio
import logging
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from pvaffinity.errors import UserError
from pvaffinity.local.cri.container_service import ContainerService
from pvaffinity.local.cri.errors import RpcError
from pvaffinity.local.cri.image_service import ImageService
from pvaffinity.local.cri.node import Node
from pvaffinity.local.cri.rpc import Method, Methods
from pvaffinity.local.cri.runtime_service import RuntimeService
from pvaffinity.local.cri.sandbox_service import SandboxService
from pvaffinity.local.cri.stats import StatsService

_SOCKET_PATH_LIMIT = 107  # bytes: sun_path of Linux, less the terminating zero
_MESSAGE_LIMIT = 16 << 20  # bytes, the kubelet's own (cri-client, pkg/util)
_LOG = logging.getLogger(__name__)


def check_socket(path: Path) -> None:
    """Refuse what cannot become a socket, and make its directory. gRPC itself replaces a stale socket file.

    Raises:
        UserError: the path is too long, is something else than a socket, or a process answers there.
    """
    if len(os.fsencode(path)) > _SOCKET_PATH_LIMIT:
        raise UserError(
            f"the socket path {path} is longer than {_SOCKET_PATH_LIMIT} bytes", "use a shorter directory for it"
        )
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise UserError(f"{path} cannot be used: {error.strerror}", "use a directory you may write") from error
    if not stat.S_ISSOCK(mode):
        raise UserError(f"{path} is there and is no socket", "name a path that is free")
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(os.fsencode(path)) == 0:
            raise UserError(f"another process serves {path}", "stop it, or name a path that is free")


class NodeServer:
    """The gRPC server of one node.

    Args:
        node: what it serves.
        path: its socket, to be removed at the end; :func:`check_socket` comes first.
    """

    def __init__(self, node: Node, path: Path) -> None:
        self._node = node
        self._path = path
        self._server: Any = None

    async def start(self) -> None:
        """Listen; on return the socket answers.

        Raises:
            UserError: the socket cannot be made.
        """
        options = [
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", _MESSAGE_LIMIT),
            ("grpc.max_send_message_length", _MESSAGE_LIMIT),
        ]
        server = grpc.aio.server(options=options)
        server.add_generic_rpc_handlers((_Handlers(self._node),))
        try:
            server.add_insecure_port(f"unix:{self._path}")
        except RuntimeError as error:
            raise UserError(f"cannot listen on {self._path}: {error}", "use a directory you may write") from error
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Abort calls that are being answered; gRPC removes the socket. Nothing if it was not started."""
        if self._server is not None:
            await self._server.stop(None)


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio is not typed
    """Finds the method of a call; None makes gRPC answer UNIMPLEMENTED."""

    def __init__(self, node: Node) -> None:
        runtime: Methods = {
            **RuntimeService().methods(),
            **SandboxService(node).methods(),
            **ContainerService(node).methods(),
            **StatsService(node).methods(),
        }
        self._name = node.name
        self._handlers = {
            f"/runtime.v1.{service}/{name}": grpc.unary_unary_rpc_method_handler(_behaviour(node.name, name, method))
            for service, methods in (("RuntimeService", runtime), ("ImageService", ImageService(node).methods()))
            for name, method in methods.items()
        }
        self._missing: set[str] = set()

    def service(self, handler_call_details: Any) -> Any:
        """Look up a method by its full name; say once of each that is missing."""
        path = handler_call_details.method
        handler = self._handlers.get(path)
        if handler is None and path not in self._missing:
            self._missing.add(path)
            _LOG.info("%s: %s is not implemented", self._name, path)
        return handler


def _behaviour(node: str, name: str, method: Method[Any]) -> Callable[[bytes, Any], Awaitable[bytes]]:
    """Decode, answer, encode. Decoding is done here and not by gRPC, whose answer to bad bytes would be INTERNAL."""

    async def call(data: bytes, context: Any) -> bytes:
        try:
            response = await method.answer(method.request.FromString(data))
            return response.SerializeToString()
        except DecodeError:
            code, text = "INVALID_ARGUMENT", f"{name}: the request cannot be decoded"
        except RpcError as error:
            code, text = error.code, str(error)
        except Exception as error:  # noqa: BLE001  one failing call must not end the others' containers
            _LOG.exception("%s: %s failed", node, name)
            code, text = "INTERNAL", f"{name}: {type(error).__name__}: {error}"
        _LOG.debug("%s: %s: %s: %s", node, name, code, text)
        await context.abort(grpc.StatusCode[code], text)
        raise asyncio.CancelledError  # not reached: abort raises

    return call
