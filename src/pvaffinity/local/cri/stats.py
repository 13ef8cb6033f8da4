"""The statistics calls of ``runtime.v1.RuntimeService``.

The numbers are invented, and constant: a simulated container uses nothing. They say "little" where a zero would read
as "not measured"; only which containers there are, and for how long they have run, is true.
"""

from __future__ import annotations

__all__ = ["StatsService", "filesystem_usage"]

import time
from pathlib import Path

from pvaffinity.local.cri import cri_pb2 as pb
from pvaffinity.local.cri.node import Node
from pvaffinity.local.cri.objects import Container, Sandbox
from pvaffinity.local.cri.rpc import Method, Methods

_CORES = 0.001
_MEMORY = 1 << 20  # bytes


class StatsService:
    """Statistics of containers and sandboxes that run."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def methods(self) -> Methods:
        """The calls by name."""
        return {
            "ContainerStats": Method(pb.ContainerRequest, self.container),
            "ListContainerStats": Method(pb.ListContainerStatsRequest, self.list_containers),
            "PodSandboxStats": Method(pb.PodSandboxRequest, self.sandbox),
            "ListPodSandboxStats": Method(pb.ListPodSandboxStatsRequest, self.list_sandboxes),
        }

    async def container(self, request: pb.ContainerRequest) -> pb.ContainerStatsResponse:
        """Of one container."""
        return pb.ContainerStatsResponse(stats=self._of_container(self._node.container(request.container_id)))

    async def list_containers(self, request: pb.ListContainerStatsRequest) -> pb.ListContainerStatsResponse:
        """Of the running containers that the filter admits."""
        wanted = request.filter
        found = self._node.containers(wanted.id, wanted.label_selector, pb.CONTAINER_RUNNING, wanted.pod_sandbox_id)
        return pb.ListContainerStatsResponse(stats=[self._of_container(container) for container in found])

    async def sandbox(self, request: pb.PodSandboxRequest) -> pb.PodSandboxStatsResponse:
        """Of one sandbox."""
        return pb.PodSandboxStatsResponse(stats=self._of_sandbox(self._node.sandbox(request.pod_sandbox_id)))

    async def list_sandboxes(self, request: pb.ListPodSandboxStatsRequest) -> pb.ListPodSandboxStatsResponse:
        """Of the ready sandboxes that the filter admits."""
        found = self._node.sandboxes(request.filter.id, request.filter.label_selector, pb.SANDBOX_READY)
        return pb.ListPodSandboxStatsResponse(stats=[self._of_sandbox(sandbox) for sandbox in found])

    def _of_container(self, container: Container) -> pb.ContainerStats:
        attributes = pb.ContainerAttributes(
            id=container.id,
            metadata=container.config.metadata,
            labels=container.config.labels,
            annotations=container.config.annotations,
        )
        until = container.finished_at or time.time_ns()
        ran = until - container.started_at if container.started_at else 0
        return pb.ContainerStats(
            attributes=attributes,
            cpu=_cpu(ran, int(container.running)),
            memory=_memory(int(container.running)),
            writable_layer=filesystem_usage(self._node.state_dir, 4096, 1),
        )

    def _of_sandbox(self, sandbox: Sandbox) -> pb.PodSandboxStats:
        attributes = pb.PodSandboxAttributes(
            id=sandbox.id,
            metadata=sandbox.config.metadata,
            labels=sandbox.config.labels,
            annotations=sandbox.config.annotations,
        )
        running = self._node.containers(state=pb.CONTAINER_RUNNING, sandbox=sandbox.id)
        containers = [self._of_container(container) for container in running]
        now = time.time_ns()
        return pb.PodSandboxStats(
            attributes=attributes,
            linux=pb.LinuxPodSandboxStats(
                cpu=_cpu(now - sandbox.created_at, len(containers)),
                memory=_memory(len(containers)),
                process=pb.ProcessUsage(timestamp=now, process_count=pb.UInt64Value(value=len(containers))),
                containers=containers,
            ),
        )


def _cpu(ran: int, running: int) -> pb.CpuUsage:
    return pb.CpuUsage(
        timestamp=time.time_ns(),
        usage_core_nano_seconds=pb.UInt64Value(value=int(ran * _CORES)),
        usage_nano_cores=pb.UInt64Value(value=int(running * _CORES * 1e9)),
    )


def _memory(running: int) -> pb.MemoryUsage:
    used = pb.UInt64Value(value=running * _MEMORY)
    return pb.MemoryUsage(timestamp=time.time_ns(), working_set_bytes=used, usage_bytes=used, rss_bytes=used)


def filesystem_usage(mountpoint: Path, used: int, inodes: int) -> pb.FilesystemUsage:
    """Usage of a file system; the kubelet itself looks up the capacity of ``mountpoint``, which it must see."""
    return pb.FilesystemUsage(
        timestamp=time.time_ns(),
        fs_id=pb.FilesystemIdentifier(mountpoint=str(mountpoint)),
        used_bytes=pb.UInt64Value(value=used),
        inodes_used=pb.UInt64Value(value=inodes),
    )
