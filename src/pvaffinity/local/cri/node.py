"""What one simulated node holds: sandboxes, containers, images, addresses. In memory only."""

from __future__ import annotations

__all__ = ["Node"]

import ipaddress
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from pvaffinity.local.cri import cri_pb2 as pb
from pvaffinity.local.cri.addresses import Addresses
from pvaffinity.local.cri.errors import InvalidArgumentError, NotFoundError
from pvaffinity.local.cri.images import ImageStore
from pvaffinity.local.cri.objects import Container, Sandbox

_Thing = TypeVar("_Thing")


class Node:
    """The store of one node.

    Args:
        name: for messages only.
        index: its place among the nodes, from 0; decides the pods' addresses.
        state_dir: a directory that exists; reported as the image file system.
        network: the pod network of all nodes.
        listen: whether containers' ports are opened.
    """

    def __init__(self, name: str, index: int, state_dir: Path, network: ipaddress.IPv4Network, *, listen: bool) -> None:
        self.name = name
        self.state_dir = state_dir
        self.listen = listen
        self.images = ImageStore()
        self._addresses = Addresses(network, index)
        self._sandboxes: dict[str, Sandbox] = {}
        self._containers: dict[str, Container] = {}

    def add_sandbox(self, config: pb.PodSandboxConfig, handler: str) -> Sandbox:
        """A new, ready sandbox; an address of its own unless it is in the host network."""
        host_network = config.linux.security_context.namespace_options.network == pb.NODE
        sandbox = Sandbox(config, "" if host_network else self._addresses.take(), handler)
        self._sandboxes[sandbox.id] = sandbox
        return sandbox

    def add_container(self, sandbox: Sandbox, config: pb.ContainerConfig) -> Container:
        """A new container, created and not started."""
        sandbox.require_ready()
        container = Container(sandbox, config)
        self._containers[container.id] = container
        return container

    def sandbox(self, wanted: str) -> Sandbox:
        """The sandbox of that id, or of an id that begins so.

        Raises:
            InvalidArgumentError: the id is empty.
            NotFoundError: there is none, or more than one.
        """
        return _only(self._sandboxes, wanted, "pod sandbox")

    def container(self, wanted: str) -> Container:
        """The container of that id, or of an id that begins so; raises as :meth:`sandbox` does."""
        return _only(self._containers, wanted, "container")

    def sandboxes(
        self, prefix: str = "", labels: Mapping[str, str] | None = None, state: int | None = None
    ) -> Iterator[Sandbox]:
        """Sandboxes whose id begins with ``prefix``, that carry all ``labels`` and are in ``state``."""
        for sandbox in self._sandboxes.values():
            if sandbox.id.startswith(prefix) and state in (None, sandbox.state) and _carries(sandbox.config, labels):
                yield sandbox

    def containers(
        self, prefix: str = "", labels: Mapping[str, str] | None = None, state: int | None = None, sandbox: str = ""
    ) -> Iterator[Container]:
        """Containers whose id begins with ``prefix``, whose sandbox's id does with ``sandbox``, and so on."""
        for container in self._containers.values():
            if (
                container.id.startswith(prefix)
                and container.sandbox.id.startswith(sandbox)
                and state in (None, container.state)
                and _carries(container.config, labels)
            ):
                yield container

    def stop_sandbox(self, sandbox: Sandbox) -> None:
        """Kill what still runs in it and free its address; nothing if it is stopped."""
        for container in self.containers(sandbox=sandbox.id):
            container.kill()
        if sandbox.ready:
            sandbox.state = pb.SANDBOX_NOTREADY
            self._addresses.give_back(sandbox.address)

    def remove_sandbox(self, sandbox: Sandbox) -> None:
        """Stop it and forget it with all its containers."""
        self.stop_sandbox(sandbox)
        for container in list(self.containers(sandbox=sandbox.id)):
            self.remove_container(container)
        self._sandboxes.pop(sandbox.id, None)

    def remove_container(self, container: Container) -> None:
        """Kill it if it runs and forget it."""
        container.kill()
        self._containers.pop(container.id, None)


def _carries(config: pb.PodSandboxConfig | pb.ContainerConfig, labels: Mapping[str, str] | None) -> bool:
    return all(config.labels.get(key) == value for key, value in (labels or {}).items())


def _only(things: Mapping[str, _Thing], wanted: str, kind: str) -> _Thing:
    if not wanted:
        raise InvalidArgumentError(f"the request names no {kind}")
    if wanted in things:
        return things[wanted]
    found = [thing for key, thing in things.items() if key.startswith(wanted)]
    if len(found) != 1:
        raise NotFoundError(f"{kind} {wanted}: {'not found' if not found else 'more than one id begins so'}")
    return found[0]
