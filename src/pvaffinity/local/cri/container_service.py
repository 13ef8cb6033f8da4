"""The calls of ``runtime.v1.RuntimeService`` on containers."""

from __future__ import annotations

__all__ = ["ContainerService"]

import contextlib

from pvaffinity.local.cri import cri_pb2 as pb
from pvaffinity.local.cri.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, UnimplementedError
from pvaffinity.local.cri.exec import exec_sync
from pvaffinity.local.cri.images import describe
from pvaffinity.local.cri.node import Node
from pvaffinity.local.cri.objects import Container
from pvaffinity.local.cri.rpc import Method, Methods


class ContainerService:
    """Stopping and removing is idempotent, as the CRI demands; an unknown id is no error there."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def methods(self) -> Methods:
        """The calls by name."""
        return {
            "CreateContainer": Method(pb.CreateContainerRequest, self.create),
            "StartContainer": Method(pb.ContainerRequest, self.start),
            "StopContainer": Method(pb.StopContainerRequest, self.stop),
            "RemoveContainer": Method(pb.ContainerRequest, self.remove),
            "ContainerStatus": Method(pb.ContainerRequest, self.status),
            "ListContainers": Method(pb.ListContainersRequest, self.list),
            "UpdateContainerResources": Method(pb.UpdateContainerResourcesRequest, self.update_resources),
            "ReopenContainerLog": Method(pb.ContainerRequest, self.reopen_log),
            "ExecSync": Method(pb.ExecSyncRequest, self.exec_sync),
            "Exec": Method(pb.ContainerRequest, self.exec),
            "Attach": Method(pb.ContainerRequest, self.attach),
            "PortForward": Method(pb.PodSandboxRequest, self.port_forward),
        }

    async def create(self, request: pb.CreateContainerRequest) -> pb.CreateContainerResponse:
        """Create a container in a sandbox that is ready."""
        config = request.config
        if not (config.metadata.name and config.image.image):
            raise InvalidArgumentError("a container needs a name and an image")
        container = self._node.add_container(self._node.sandbox(request.pod_sandbox_id), config)
        return pb.CreateContainerResponse(container_id=container.id)

    async def start(self, request: pb.ContainerRequest) -> pb.Empty:
        """Start a container that was never started."""
        await self._node.container(request.container_id).start(listen=self._node.listen)
        return pb.Empty()

    async def stop(self, request: pb.StopContainerRequest) -> pb.Empty:
        """Answer when the container has ended, at the latest when the grace period has."""
        with contextlib.suppress(NotFoundError):
            await self._node.container(request.container_id).stop(request.timeout)
        return pb.Empty()

    async def remove(self, request: pb.ContainerRequest) -> pb.Empty:
        """Forget it; one that runs is killed first."""
        with contextlib.suppress(NotFoundError):
            self._node.remove_container(self._node.container(request.container_id))
        return pb.Empty()

    async def status(self, request: pb.ContainerRequest) -> pb.ContainerStatusResponse:
        """State, times, exit code, and what the kubelet configured."""
        container = self._node.container(request.container_id)
        config, image = container.config, _image(container)
        status = pb.ContainerStatus(
            id=container.id,
            metadata=config.metadata,
            state=container.state,
            created_at=container.created_at,
            started_at=container.started_at,
            finished_at=container.finished_at,
            exit_code=container.exit_code,
            image=image.spec,
            image_ref=image.repo_digests[0],
            image_id=image.id,
            reason=container.reason,
            labels=config.labels,
            annotations=config.annotations,
            mounts=config.mounts,
            log_path=str(container.log.path or ""),
            resources=pb.ContainerResources(linux=config.linux.resources),
            stop_signal=config.stop_signal,
        )
        return pb.ContainerStatusResponse(status=status)

    async def list(self, request: pb.ListContainersRequest) -> pb.ListContainersResponse:
        """Containers that the filter admits."""
        wanted = request.filter
        state = wanted.state.state if wanted.HasField("state") else None
        found = self._node.containers(wanted.id, wanted.label_selector, state, wanted.pod_sandbox_id)
        return pb.ListContainersResponse(containers=[_listed(container) for container in found])

    async def update_resources(self, request: pb.UpdateContainerResourcesRequest) -> pb.Empty:
        """Remember limits, for the status to show; fields that are not set keep their value."""
        resources = self._node.container(request.container_id).config.linux.resources
        if request.linux.hugepage_limits:
            resources.ClearField("hugepage_limits")
        resources.MergeFrom(request.linux)
        return pb.Empty()

    async def reopen_log(self, request: pb.ContainerRequest) -> pb.Empty:
        """Begin a new log file, after the kubelet has renamed the old one."""
        container = self._node.container(request.container_id)
        if not container.running:
            raise FailedPreconditionError(f"container {container.id} does not run")
        container.log.open()
        return pb.Empty()

    async def exec_sync(self, request: pb.ExecSyncRequest) -> pb.ExecSyncResponse:
        """Run a probe's or a hook's command."""
        return await exec_sync(self._node.container(request.container_id), list(request.cmd), request.timeout)

    async def exec(self, request: pb.ContainerRequest) -> pb.Empty:
        """``kubectl exec``: refused."""
        raise UnimplementedError("containers of this cluster are simulated: exec is not supported, logs are")

    async def attach(self, request: pb.ContainerRequest) -> pb.Empty:
        """``kubectl attach``: refused."""
        raise UnimplementedError("containers of this cluster are simulated: attach is not supported, logs are")

    async def port_forward(self, request: pb.PodSandboxRequest) -> pb.Empty:
        """``kubectl port-forward``: refused."""
        raise UnimplementedError("containers of this cluster are simulated: port-forward is not supported")


def _image(container: Container) -> pb.Image:
    """The image by the name that the user gave it; ``image`` holds the id that pulling returned."""
    spec = container.config.image
    return describe(spec.user_specified_image or spec.image)


def _listed(container: Container) -> pb.Container:
    image = _image(container)
    return pb.Container(
        id=container.id,
        pod_sandbox_id=container.sandbox.id,
        metadata=container.config.metadata,
        image=image.spec,
        image_ref=image.repo_digests[0],
        image_id=image.id,
        state=container.state,
        created_at=container.created_at,
        labels=container.config.labels,
        annotations=container.config.annotations,
    )
