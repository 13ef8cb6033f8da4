"""``python -m pvaffinity.local.cri STATE_DIR NODE=SOCKET ...``: run the simulator until SIGTERM or SIGINT.

When all sockets answer, one line is written on stdout: ``serving N``. Everything else goes to stderr.
Exit codes: 0 after a signal, 2 for arguments that cannot be used.
"""

from __future__ import annotations

__all__ = ["main"]

import argparse
import asyncio
import ipaddress
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from pvaffinity.errors import UserError
from pvaffinity.local.cri.node import Node
from pvaffinity.local.cri.server import NodeServer, check_socket

_POD_NETWORK = "10.244.0.0/16"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; returns the exit code."""
    options = _parse(arguments)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if options.verbose:
        logging.getLogger("pvaffinity").setLevel(logging.DEBUG)
    try:
        nodes = _nodes(options)
        os.umask(0o077)  # sockets and logs are the user's own
        asyncio.run(_serve(nodes))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m pvaffinity.local.cri",
        description="Simulated container runtime: serves the Container Runtime Interface for kubelets.",
        epilog="State is in memory only: containers outlive their kubelet, not this process.",
    )
    parser.add_argument("state_dir", type=Path, metavar="STATE_DIR", help="made if absent; reported as image storage")
    parser.add_argument("nodes", nargs="+", metavar="NODE=SOCKET", help="a node and the Unix socket of its runtime")
    parser.add_argument(
        "--listen", action="store_true", help="open declared ports on pod addresses, which must be local here"
    )
    parser.add_argument(
        "--pod-network", default=_POD_NETWORK, metavar="CIDR", help="a /24 of it per node (default: %(default)s)"
    )
    parser.add_argument("--verbose", action="store_true", help="report refused calls on stderr")
    return parser.parse_args(arguments)


def _nodes(options: argparse.Namespace) -> list[tuple[Node, Path]]:
    """The nodes and their sockets, checked."""
    try:
        network = ipaddress.IPv4Network(options.pod_network)
    except ValueError as error:
        raise UserError(f"--pod-network: {error}", "name an IPv4 network, such as 10.244.0.0/16") from error
    if network.num_addresses < 256 * len(options.nodes):
        raise UserError(f"--pod-network: {network} has no /24 for each of the nodes", "name a wider network")
    sockets: dict[str, Path] = {}
    for argument in options.nodes:
        name, _, path = argument.partition("=")
        if not (name and path):
            raise UserError(f"{argument!r} names no node and socket", "write NODE=SOCKET")
        socket = Path(path).absolute()
        if name in sockets or socket in sockets.values():
            raise UserError(f"{argument!r}: the node or the socket is named twice", "give each node its own socket")
        sockets[name] = socket
    state_dir = options.state_dir.absolute()
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{state_dir} cannot be used: {error.strerror}", "name a directory you may write") from error
    for path in sockets.values():
        check_socket(path)
    return [
        (Node(name, index, state_dir, network, listen=options.listen), path)
        for index, (name, path) in enumerate(sockets.items())
    ]


async def _serve(nodes: Sequence[tuple[Node, Path]]) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    servers = [NodeServer(node, path) for node, path in nodes]
    try:
        for server in servers:
            await server.start()
        print("serving", len(servers), flush=True)
        await ended.wait()
    finally:
        await asyncio.gather(*(server.stop() for server in servers))


if __name__ == "__main__":
    sys.exit(main())
