"""The calls of ``runtime.v1.RuntimeService`` on pod sandboxes."""

from __future__ import annotations

__all__ = ["SandboxService"]

import contextlib

from pvaffinity.local.cri import cri_pb2 as pb
from pvaffinity.local.cri.errors import InvalidArgumentError, NotFoundError
from pvaffinity.local.cri.node import Node
from pvaffinity.local.cri.rpc import Method, Methods


class SandboxService:
    """Stopping and removing is idempotent, as the CRI demands; an unknown id is no error there."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def methods(self) -> Methods:
        """The calls by name."""
        return {
            "RunPodSandbox": Method(pb.RunPodSandboxRequest, self.run),
            "StopPodSandbox": Method(pb.PodSandboxRequest, self.stop),
            "RemovePodSandbox": Method(pb.PodSandboxRequest, self.remove),
            "PodSandboxStatus": Method(pb.PodSandboxRequest, self.status),
            "ListPodSandbox": Method(pb.ListPodSandboxRequest, self.list),
            "UpdatePodSandboxResources": Method(pb.PodSandboxRequest, self.update_resources),
        }

    async def run(self, request: pb.RunPodSandboxRequest) -> pb.RunPodSandboxResponse:
        """Create a sandbox, ready at once."""
        metadata = request.config.metadata
        if not (metadata.name and metadata.namespace and metadata.uid):
            raise InvalidArgumentError("a pod sandbox needs the pod's name, namespace and uid")
        sandbox = self._node.add_sandbox(request.config, request.runtime_handler)
        return pb.RunPodSandboxResponse(pod_sandbox_id=sandbox.id)

    async def stop(self, request: pb.PodSandboxRequest) -> pb.Empty:
        """Kill its containers; the kubelet has stopped them gracefully before."""
        with contextlib.suppress(NotFoundError):
            self._node.stop_sandbox(self._node.sandbox(request.pod_sandbox_id))
        return pb.Empty()

    async def remove(self, request: pb.PodSandboxRequest) -> pb.Empty:
        """Stop and forget it, with its containers."""
        with contextlib.suppress(NotFoundError):
            self._node.remove_sandbox(self._node.sandbox(request.pod_sandbox_id))
        return pb.Empty()

    async def status(self, request: pb.PodSandboxRequest) -> pb.PodSandboxStatusResponse:
        """Its state; the address only while it is ready, as containerd does."""
        sandbox = self._node.sandbox(request.pod_sandbox_id)
        options = sandbox.config.linux.security_context.namespace_options
        status = pb.PodSandboxStatus(
            id=sandbox.id,
            metadata=sandbox.config.metadata,
            state=sandbox.state,
            created_at=sandbox.created_at,
            network=pb.PodSandboxNetworkStatus(ip=sandbox.address if sandbox.ready else ""),
            linux=pb.LinuxPodSandboxStatus(namespaces=pb.Namespace(options=options)),
            labels=sandbox.config.labels,
            annotations=sandbox.config.annotations,
            runtime_handler=sandbox.handler,
        )
        return pb.PodSandboxStatusResponse(status=status)

    async def list(self, request: pb.ListPodSandboxRequest) -> pb.ListPodSandboxResponse:
        """Sandboxes that the filter admits."""
        wanted = request.filter
        state = wanted.state.state if wanted.HasField("state") else None
        return pb.ListPodSandboxResponse(
            items=[
                pb.PodSandbox(
                    id=sandbox.id,
                    metadata=sandbox.config.metadata,
                    state=sandbox.state,
                    created_at=sandbox.created_at,
                    labels=sandbox.config.labels,
                    annotations=sandbox.config.annotations,
                    runtime_handler=sandbox.handler,
                )
                for sandbox in self._node.sandboxes(wanted.id, wanted.label_selector, state)
            ]
        )

    async def update_resources(self, request: pb.PodSandboxRequest) -> pb.Empty:
        """Accepted; a sandbox has no resources here."""
        self._node.sandbox(request.pod_sandbox_id)
        return pb.Empty()
