"""The container runtime simulator over two nodes, and a gRPC client that calls it as a kubelet does."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from pvaffinity.local.cri import cri_pb2 as pb
from selftests.awaiting import eventually


class Client:
    """Calls one node's runtime."""

    def __init__(self, path: Path) -> None:
        self.channel = grpc.insecure_channel(f"unix:{path}")

    def raw(self, method: str, data: bytes, timeout: float = 10) -> bytes:
        """Bytes to a method by its full name."""
        call = self.channel.unary_unary(f"/runtime.v1.{method}", request_serializer=None, response_deserializer=None)
        return call(data, timeout=timeout)

    def __call__(self, name: str, request: Any = None, response: Any = pb.Empty) -> Any:
        """Call a method with messages."""
        service = "ImageService" if "Image" in name else "RuntimeService"
        return response.FromString(self.raw(f"{service}/{name}", (request or pb.Empty()).SerializeToString()))

    def refusal(self, name: str, request: Any = None) -> tuple[str, str]:
        """Status code and text of a call that fails."""
        with pytest.raises(grpc.RpcError) as caught:
            self(name, request)
        return caught.value.code().name, caught.value.details()

    def pod(self, name: str = "pod", *, host_network: bool = False, logs: Path | None = None, **labels: str) -> str:
        """A new sandbox."""
        linux = pb.LinuxPodSandboxConfig()
        if host_network:
            linux.security_context.namespace_options.network = pb.NODE
        metadata = pb.PodSandboxMetadata(name=name, namespace="default", uid=f"uid-{name}", attempt=2)
        config = pb.PodSandboxConfig(metadata=metadata, labels=labels, annotations={"a": "b"}, linux=linux)
        config.log_directory = str(logs or "")
        request = pb.RunPodSandboxRequest(config=config, runtime_handler="h")
        return str(self("RunPodSandbox", request, pb.RunPodSandboxResponse).pod_sandbox_id)

    def pod_status(self, pod: str) -> Any:
        """Of a sandbox."""
        return self("PodSandboxStatus", pb.PodSandboxRequest(pod_sandbox_id=pod), pb.PodSandboxStatusResponse).status

    def create(self, pod: str, *command: str, **fields: Any) -> str:
        """A new container."""
        metadata = pb.ContainerMetadata(name=fields.pop("name", "c"), attempt=fields.pop("attempt", 0))
        image = pb.ImageSpec(image="sha256:1", user_specified_image="busybox:1.36")
        config = pb.ContainerConfig(metadata=metadata, image=image, command=command, **fields)
        request = pb.CreateContainerRequest(pod_sandbox_id=pod, config=config)
        return str(self("CreateContainer", request, pb.CreateContainerResponse).container_id)

    def start(self, pod: str, *command: str, **fields: Any) -> str:
        """A new container, started."""
        container = self.create(pod, *command, **fields)
        self("StartContainer", pb.ContainerRequest(container_id=container))
        return container

    def status(self, container: str) -> Any:
        """Of a container."""
        request = pb.ContainerRequest(container_id=container)
        return self("ContainerStatus", request, pb.ContainerStatusResponse).status

    def ended(self, container: str) -> Any:
        """The status of a container, once it has exited."""
        return eventually(lambda: s if (s := self.status(container)).state == pb.CONTAINER_EXITED else None)

    def stop(self, container: str, timeout: int = 30) -> float:
        """Stop a container; the seconds that took."""
        began = time.monotonic()
        self("StopContainer", pb.StopContainerRequest(container_id=container, timeout=timeout))
        return time.monotonic() - began

    def exec(self, container: str, *command: str, timeout: int = 0) -> Any:
        """Run a command in a container."""
        request = pb.ExecSyncRequest(container_id=container, cmd=command, timeout=timeout)
        return self("ExecSync", request, pb.ExecSyncResponse)

    def containers(self, **wanted: Any) -> list[str]:
        """Ids of containers that a filter admits."""
        request = pb.ListContainersRequest(filter=pb.ContainerFilter(**wanted))
        return [c.id for c in self("ListContainers", request, pb.ListContainersResponse).containers]

    def pods(self, **wanted: Any) -> list[str]:
        """Ids of sandboxes that a filter admits."""
        request = pb.ListPodSandboxRequest(filter=pb.PodSandboxFilter(**wanted))
        return [s.id for s in self("ListPodSandbox", request, pb.ListPodSandboxResponse).items]


@contextlib.contextmanager
def two_nodes() -> Iterator[tuple[Client, Client]]:
    """Two nodes of one simulator, which has to end well."""
    pipe = subprocess.PIPE
    with tempfile.TemporaryDirectory(prefix="pv") as short:  # Unix sockets lie in it
        directory = Path(short)
        a, b = directory / "a.sock", directory / "b.sock"
        arguments = ["--listen", "--pod-network", "127.244.0.0/16", directory / "state", f"node-a={a}", f"node-b={b}"]
        command = [sys.executable, "-m", "pvaffinity.local.cri", *map(str, arguments)]
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
            try:
                assert process.stdout
                assert process.stdout.readline() == "serving 2\n"
                clients = Client(a), Client(b)
                yield clients
                for client in clients:
                    client.channel.close()
                process.send_signal(signal.SIGTERM)
                out, err = process.communicate(timeout=30)
                assert (process.returncode, out) == (0, "")
                assert "Traceback" not in err
            finally:
                process.kill()


def empty(node: Client) -> None:
    """Remove a node's pods; no container outlives them."""
    for pod in node.pods():
        node("RemovePodSandbox", pb.PodSandboxRequest(pod_sandbox_id=pod))
    assert node.containers() == []
