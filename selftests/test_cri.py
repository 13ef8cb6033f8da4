"""The container runtime simulator as a kubelet sees it: a gRPC client on its socket, no kubelet."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from pvaffinity.local.cri import cri_pb2 as pb

NODE_NETWORK = "127.244.0."  # of the first node; all of 127.0.0.0/8 is local on Linux


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


def eventually(look: Callable[[], Any], seconds: float = 30) -> Any:
    """The first true answer of ``look``."""
    until = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < until, "the awaited never came"
        time.sleep(0.01)
    return seen


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="pv"))  # short: Unix sockets lie in it
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def nodes(directory: Path) -> Iterator[tuple[Client, Client]]:
    """Two nodes of one simulator."""
    a, b = directory / "a.sock", directory / "b.sock"
    arguments = ["--listen", "--pod-network", "127.244.0.0/16", directory / "state", f"node-a={a}", f"node-b={b}"]
    command = [sys.executable, "-m", "pvaffinity.local.cri", *map(str, arguments)]
    pipe = subprocess.PIPE
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


@pytest.fixture
def node(nodes: tuple[Client, Client]) -> Iterator[Client]:
    """The first node, emptied afterwards."""
    yield nodes[0]
    for pod in nodes[0].pods():
        nodes[0]("RemovePodSandbox", pb.PodSandboxRequest(pod_sandbox_id=pod))
    assert nodes[0].containers() == []


def test_the_runtime_is_ready(node: Client) -> None:
    """Version, Status and RuntimeConfig say what a kubelet needs to hear."""
    version = node("Version", response=pb.VersionResponse)
    assert all((version.version, version.runtime_name, version.runtime_version))
    assert version.runtime_api_version == "v1"
    conditions = node("Status", response=pb.StatusResponse).status.conditions
    assert {(c.type, c.status) for c in conditions} == {("RuntimeReady", True), ("NetworkReady", True)}
    assert node("RuntimeConfig", response=pb.RuntimeConfigResponse).linux.cgroup_driver == pb.CGROUPFS


def test_a_pods_life(node: Client) -> None:
    """A sandbox is ready until it is stopped, loses its address then, and is gone when it is removed."""
    before = time.time_ns()
    pod = node.pod("p", app="x")
    status = node.pod_status(pod)
    assert (status.id, status.state, status.runtime_handler) == (pod, pb.SANDBOX_READY, "h")
    assert (status.metadata.name, status.metadata.uid, status.metadata.attempt) == ("p", "uid-p", 2)
    assert (dict(status.labels), dict(status.annotations)) == ({"app": "x"}, {"a": "b"})
    assert before <= status.created_at <= time.time_ns()
    assert status.network.ip.startswith(NODE_NETWORK)
    for _ in range(2):
        node("StopPodSandbox", pb.PodSandboxRequest(pod_sandbox_id=pod))
        status = node.pod_status(pod)
        assert (status.state, status.network.ip) == (pb.SANDBOX_NOTREADY, "")
    for _ in range(2):
        node("RemovePodSandbox", pb.PodSandboxRequest(pod_sandbox_id=pod))
    assert node.refusal("PodSandboxStatus", pb.PodSandboxRequest(pod_sandbox_id=pod))[0] == "NOT_FOUND"


def test_addresses(nodes: tuple[Client, Client], node: Client) -> None:
    """Every pod has an address of its own, of its node's network; host network pods have none."""
    addresses = [node.pod_status(node.pod(f"p{i}")).network.ip for i in range(5)]
    assert len(set(addresses)) == 5
    other = nodes[1].pod()
    assert nodes[1].pod_status(other).network.ip.startswith("127.244.1.")
    nodes[1]("RemovePodSandbox", pb.PodSandboxRequest(pod_sandbox_id=other))
    host = node.pod_status(node.pod(host_network=True))
    assert (host.network.ip, host.linux.namespaces.options.network) == ("", pb.NODE)


def test_addresses_run_out(node: Client) -> None:
    """The 255th pod of a node is refused, and a removed pod makes room."""
    pods = [node.pod() for _ in range(254)]
    assert len({node.pod_status(pod).network.ip for pod in pods}) == 254
    metadata = pb.PodSandboxMetadata(name="p", namespace="n", uid="u")
    one_more = pb.RunPodSandboxRequest(config=pb.PodSandboxConfig(metadata=metadata))
    assert node.refusal("RunPodSandbox", one_more)[0] == "RESOURCE_EXHAUSTED"
    freed = node.pod_status(pods[7]).network.ip
    node("RemovePodSandbox", pb.PodSandboxRequest(pod_sandbox_id=pods[7]))
    assert node.pod_status(node.pod()).network.ip == freed


def test_a_containers_life(node: Client) -> None:
    """A container is created, runs and exits, with truthful times, code and reason, and echoes what was configured."""
    before = time.time_ns()
    mounts = [pb.Mount(container_path="/data", host_path="/not/there", readonly=True)]
    resources = pb.LinuxContainerConfig(resources=pb.LinuxContainerResources(cpu_shares=2))
    options = {"labels": {"l": "1"}, "annotations": {"a": "2"}, "mounts": mounts, "linux": resources, "attempt": 3}
    container = node.create(node.pod(), "sh", "-c", "sleep 0.2; exit 3", **options)
    created = node.status(container)
    assert (created.state, created.started_at, created.finished_at) == (pb.CONTAINER_CREATED, 0, 0)
    assert (created.exit_code, created.reason) == (0, "")
    node("StartContainer", pb.ContainerRequest(container_id=container))
    running = node.status(container)
    assert (running.state, running.finished_at) == (pb.CONTAINER_RUNNING, 0)
    ended = node.ended(container)
    assert (ended.exit_code, ended.reason) == (3, "Error")
    assert before < ended.created_at < ended.started_at < ended.finished_at < time.time_ns()
    assert ended.finished_at - ended.started_at >= 200_000_000
    assert (dict(ended.labels), dict(ended.annotations), list(ended.mounts)) == ({"l": "1"}, {"a": "2"}, mounts)
    assert (ended.metadata.name, ended.metadata.attempt, ended.resources.linux.cpu_shares) == ("c", 3, 2)
    assert (ended.image.image, ended.image_ref.split("@")[0]) == ("busybox:1.36", "busybox")


def test_completed(node: Client) -> None:
    """A command that succeeds is Completed."""
    ended = node.ended(node.start(node.pod(), "true"))
    assert (ended.exit_code, ended.reason) == (0, "Completed")


def test_illegal_transitions(node: Client) -> None:
    """No container is started twice, none in a stopped sandbox, and none is created there."""
    pod = node.pod()
    started, created = node.start(pod), node.create(pod)
    assert node.refusal("StartContainer", pb.ContainerRequest(container_id=started))[0] == "FAILED_PRECONDITION"
    node("StopPodSandbox", pb.PodSandboxRequest(pod_sandbox_id=pod))
    assert (node.status(started).state, node.status(started).exit_code) == (pb.CONTAINER_EXITED, 137)
    assert node.status(created).state == pb.CONTAINER_CREATED
    assert node.refusal("StartContainer", pb.ContainerRequest(container_id=created))[0] == "FAILED_PRECONDITION"
    image = pb.ImageSpec(image="i")
    config = pb.ContainerConfig(metadata=pb.ContainerMetadata(name="c"), image=image)
    request = pb.CreateContainerRequest(pod_sandbox_id=pod, config=config)
    assert node.refusal("CreateContainer", request)[0] == "FAILED_PRECONDITION"


@pytest.mark.parametrize(("command", "code", "reason"), [((), 0, "Completed"), (("sleep", "9"), 143, "Error")])
def test_stop_ends_at_once(node: Client, command: tuple[str, ...], code: int, reason: str) -> None:
    """A container that ends on SIGTERM does not use up its grace period; stopping it again changes nothing."""
    container = node.start(node.pod(), *command)
    assert node.stop(container, timeout=30) < 15
    status = node.status(container)
    assert (status.state, status.exit_code, status.reason) == (pb.CONTAINER_EXITED, code, reason)
    node.stop(container)
    assert node.status(container) == status


def test_stop_waits_for_the_grace_period(node: Client) -> None:
    """A container that ignores SIGTERM lives as long as its grace period, and is killed."""
    container = node.start(node.pod(), "sh", "-c", "trap '' TERM; sleep 60")
    assert 1 <= node.stop(container, timeout=1) < 30
    assert node.status(container).exit_code == 137


def test_stop_without_grace_kills(node: Client) -> None:
    """A grace period of 0 is SIGKILL."""
    container = node.start(node.pod())
    node.stop(container, timeout=0)
    assert node.status(container).exit_code == 137


def test_stop_signal(node: Client) -> None:
    """A container's own stop signal is the one it gets."""
    container = node.start(node.pod(), "sleep", "60", stop_signal=pb.SIGNAL_SIGQUIT)
    assert node.status(container).stop_signal == pb.SIGNAL_SIGQUIT
    node.stop(container)
    assert node.status(container).exit_code == 128 + signal.SIGQUIT


def test_removal(node: Client) -> None:
    """Removing is idempotent and takes a running container down; the pod's removal takes its containers along."""
    pod = node.pod()
    first, second = node.start(pod), node.start(pod)
    for _ in range(2):
        node("RemoveContainer", pb.ContainerRequest(container_id=first))
    assert node.containers() == [second]
    node("RemovePodSandbox", pb.PodSandboxRequest(pod_sandbox_id=pod))
    assert node.containers() == node.pods() == []


def test_filters(node: Client) -> None:
    """Lists can be asked by id prefix, state, labels and pod; a unique prefix of an id names the thing."""
    pods = [node.pod("x", app="1", tier="t"), node.pod("y", app="2", tier="t")]
    node("StopPodSandbox", pb.PodSandboxRequest(pod_sandbox_id=pods[1]))
    containers = [node.create(pods[0], labels={"n": "1"}), node.start(pods[0], labels={"n": "2"})]
    assert node.pods() == pods
    assert node.pods(id=pods[0][:12]) == [pods[0]]
    assert node.pods(id="zz") == []
    assert node.pods(state=pb.PodSandboxStateValue(state=pb.SANDBOX_READY)) == [pods[0]]
    assert node.pods(state=pb.PodSandboxStateValue(state=pb.SANDBOX_NOTREADY)) == [pods[1]]
    assert node.pods(label_selector={"tier": "t"}) == pods
    assert node.pods(label_selector={"tier": "t", "app": "2"}) == [pods[1]]
    assert node.containers() == containers
    assert node.containers(id=containers[1][:12]) == [containers[1]]
    assert node.containers(state=pb.ContainerStateValue(state=pb.CONTAINER_CREATED)) == [containers[0]]
    assert node.containers(state=pb.ContainerStateValue(state=pb.CONTAINER_RUNNING)) == [containers[1]]
    assert node.containers(label_selector={"n": "2"}) == [containers[1]]
    assert node.containers(pod_sandbox_id=pods[0]) == containers
    assert node.containers(pod_sandbox_id=pods[1]) == []
    assert node.status(containers[0][:12]).id == containers[0]
    assert node.pod_status(pods[0][:12]).id == pods[0]


def test_log_format(node: Client, directory: Path) -> None:
    """Logs are CRI lines, long lines in parts, one file per attempt; a rotated log begins anew."""
    pod = node.pod(logs=directory / "logs")
    text = f"echo one; echo {'x' * 20000}; sleep soon"
    container = node.start(pod, "sh", "-c", text, log_path="c/0.log")
    assert node.ended(container).log_path == str(directory / "logs/c/0.log")
    lines = (directory / "logs/c/0.log").read_text().splitlines()
    pattern = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (stdout|stderr) ([FP]) (.*)")
    entries = [match.groups() for line in lines if (match := pattern.fullmatch(line))]
    assert len(entries) == len(lines)
    assert [entry[:2] for entry in entries] == [
        ("stdout", "F"),
        ("stdout", "P"),
        ("stdout", "F"),
        ("stderr", "F"),
    ]
    assert entries[0][2] == "one"
    assert entries[1][2] + entries[2][2] == "x" * 20000

    running = node.start(pod, "heartbeat", "0.1", log_path="c/1.log")
    log = directory / "logs/c/1.log"
    eventually(lambda: log.read_text())
    log.rename(log.with_suffix(".old"))
    node("ReopenContainerLog", pb.ContainerRequest(container_id=running))
    assert log.exists()
    eventually(lambda: "heartbeat" in log.read_text())
    node.stop(running)
    assert node.refusal("ReopenContainerLog", pb.ContainerRequest(container_id=running))[0] == "FAILED_PRECONDITION"


def test_a_container_without_log_file(node: Client) -> None:
    """A log that cannot be written does not keep the container from running."""
    pod = node.pod(logs=Path("/proc/none"))
    assert node.ended(node.start(pod, "sh", "-c", "echo one; exit 4", log_path="c/0.log")).exit_code == 4


def test_exec(node: Client) -> None:
    """A probe's command answers with its output and exit code, and sees the container's environment."""
    container = node.start(node.pod(), envs=[pb.KeyValue(key="K", value=b"v")])
    answer = node.exec(container, "sh", "-c", "echo $K $HOSTNAME; sleep soon; exit 3")
    assert (answer.stdout, answer.exit_code) == (b"v pod\n", 3)
    assert answer.stderr.startswith(b"sleep: ")
    assert node.exec(container, "cat", "/tmp/healthy").exit_code == 0


def test_exec_timeout(node: Client) -> None:
    """A command that outlasts its timeout is answered DEADLINE_EXCEEDED, as the kubelet's probes expect."""
    container = node.start(node.pod())
    began = time.monotonic()
    request = pb.ExecSyncRequest(container_id=container, cmd=["sleep", "60"], timeout=1)
    assert node.refusal("ExecSync", request)[0] == "DEADLINE_EXCEEDED"
    assert 1 <= time.monotonic() - began < 30


def test_exec_needs_a_running_container(node: Client) -> None:
    """A command in a container that does not run is refused, and one that outlives its container is killed."""
    pod = node.pod()
    request = pb.ExecSyncRequest(container_id=node.create(pod), cmd=["true"])
    assert node.refusal("ExecSync", request)[0] == "FAILED_PRECONDITION"
    assert node.exec(node.start(pod, "sleep", "0.2"), "sleep", "60").exit_code == 137


def test_ports(node: Client) -> None:
    """A container's declared TCP ports answer from its start to its end; /status/CODE answers with that code."""
    declared = json.dumps([{"containerPort": 8080, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}])
    pod = node.pod()
    address = node.pod_status(pod).network.ip
    container = node.create(pod, annotations={"io.kubernetes.container.ports": declared})

    def connects() -> bool:
        with socket.socket() as connection:
            return connection.connect_ex((address, 8080)) == 0

    assert not connects()
    node("StartContainer", pb.ContainerRequest(container_id=container))
    assert connects()
    with urllib.request.urlopen(f"http://{address}:8080/healthz", timeout=30) as answer:
        assert (answer.status, answer.read()) == (200, b"simulated\n")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"http://{address}:8080/status/503", timeout=30)
    caught.value.close()
    assert caught.value.code == 503
    node.stop(container)
    assert not connects()


def test_images(node: Client) -> None:
    """A pulled image is there by name, id and digest until it is removed; a marked name is not found."""

    def image(reference: str) -> Any:
        request = pb.ImageRequest(image=pb.ImageSpec(image=reference))
        return node("ImageStatus", request, pb.ImageStatusResponse).image

    assert image("busybox").id == ""
    request = pb.ImageRequest(image=pb.ImageSpec(image="busybox"))
    pulled = node("PullImage", request, pb.PullImageResponse).image_ref
    for reference in ("busybox", "busybox:latest", pulled, f"busybox@{pulled}"):
        assert image(reference).id == pulled
    assert image(pulled).size > 0
    assert image("busybox:1.36").id == ""
    assert [i.id for i in node("ListImages", pb.ListImagesRequest(), pb.ListImagesResponse).images] == [pulled]
    usage = node("ImageFsInfo", response=pb.ImageFsInfoResponse).image_filesystems[0]
    assert usage.used_bytes.value > 0
    assert Path(usage.fs_id.mountpoint).is_dir()
    for _ in range(2):
        node("RemoveImage", request)
    assert image("busybox").id == ""
    missing = pb.ImageRequest(image=pb.ImageSpec(image="registry.example/no-such-image:1"))
    assert node.refusal("PullImage", missing)[0] == "NOT_FOUND"


def test_stats(node: Client) -> None:
    """Statistics name the containers that run, and only those in lists."""
    pod = node.pod(app="x")
    running, created = node.start(pod), node.create(pod)
    request = pb.ContainerRequest(container_id=created)
    assert node("ContainerStats", request, pb.ContainerStatsResponse).stats.cpu.usage_nano_cores.value == 0
    listed = node("ListContainerStats", pb.ListContainerStatsRequest(), pb.ListContainerStatsResponse).stats
    assert [stats.attributes.id for stats in listed] == [running]
    assert listed[0].memory.working_set_bytes.value > 0
    chosen = pb.ListPodSandboxStatsRequest(filter=pb.PodSandboxStatsFilter(label_selector={"app": "x"}))
    (of_pod,) = node("ListPodSandboxStats", chosen, pb.ListPodSandboxStatsResponse).stats
    assert of_pod.attributes.id == pod
    assert [stats.attributes.id for stats in of_pod.linux.containers] == [running]


def test_update_resources(node: Client) -> None:
    """Updated limits show in the status; those not named keep their value."""
    before = pb.LinuxContainerResources(cpu_shares=2, memory_limit_in_bytes=10)
    container = node.start(node.pod(), linux=pb.LinuxContainerConfig(resources=before))
    update = pb.LinuxContainerResources(memory_limit_in_bytes=20)
    node("UpdateContainerResources", pb.UpdateContainerResourcesRequest(container_id=container, linux=update))
    resources = node.status(container).resources.linux
    assert (resources.cpu_shares, resources.memory_limit_in_bytes) == (2, 20)


def test_unknown_ids(node: Client) -> None:
    """An id that names nothing is NOT_FOUND, except for what must be idempotent."""
    for call in ("StartContainer", "ContainerStatus", "ReopenContainerLog", "ContainerStats"):
        assert node.refusal(call, pb.ContainerRequest(container_id="ab"))[0] == "NOT_FOUND"
    for call in ("PodSandboxStatus", "PodSandboxStats", "UpdatePodSandboxResources"):
        assert node.refusal(call, pb.PodSandboxRequest(pod_sandbox_id="ab"))[0] == "NOT_FOUND"
    exec_request = pb.ExecSyncRequest(container_id="ab", cmd=["true"])
    assert node.refusal("ExecSync", exec_request)[0] == "NOT_FOUND"
    node("StopContainer", pb.StopContainerRequest(container_id="ab"))
    node("RemoveContainer", pb.ContainerRequest(container_id="ab"))
    for call in ("StopPodSandbox", "RemovePodSandbox"):
        node(call, pb.PodSandboxRequest(pod_sandbox_id="ab"))


def test_malformed_requests(node: Client) -> None:
    """Requests without what they must have, and bytes that are no message, are INVALID_ARGUMENT; the node lives on."""
    pod = node.pod()
    container = node.start(pod)
    metadata = pb.ContainerMetadata(name="c")
    requests: list[tuple[str, Any]] = [
        ("RunPodSandbox", pb.RunPodSandboxRequest()),
        ("StopPodSandbox", pb.PodSandboxRequest()),
        ("PodSandboxStatus", pb.PodSandboxRequest()),
        ("CreateContainer", pb.CreateContainerRequest(pod_sandbox_id=pod)),
        (
            "CreateContainer",
            pb.CreateContainerRequest(pod_sandbox_id=pod, config=pb.ContainerConfig(metadata=metadata)),
        ),
        ("StartContainer", pb.ContainerRequest()),
        ("ExecSync", pb.ExecSyncRequest(container_id=container)),
        ("PullImage", pb.ImageRequest()),
        ("ImageStatus", pb.ImageRequest()),
    ]
    for call, request in requests:
        assert node.refusal(call, request)[0] == "INVALID_ARGUMENT", call
    with pytest.raises(grpc.RpcError) as caught:
        node.raw("RuntimeService/RunPodSandbox", b"\xff\xff\xff")
    assert caught.value.code().name == "INVALID_ARGUMENT"
    assert node.status(container).state == pb.CONTAINER_RUNNING


@pytest.mark.parametrize("call", ["Exec", "Attach", "PortForward", "CheckpointContainer", "NoSuchCall"])
def test_unimplemented(node: Client, call: str) -> None:
    """What the simulator does not do is UNIMPLEMENTED; the streaming calls say why."""
    code, text = node.refusal(call)
    assert code == "UNIMPLEMENTED"
    assert call not in ("Exec", "Attach", "PortForward") or "simulated" in text
    with pytest.raises(grpc.RpcError) as caught:
        node.raw("OtherService/Version", b"")
    assert caught.value.code().name == "UNIMPLEMENTED"
