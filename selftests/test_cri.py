"""The container runtime simulator as a kubelet sees it: a gRPC client on its socket, no kubelet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from pvaffinity.local.cri import cri_pb2 as pb
from selftests.simulated import Client


def test_the_runtime_is_ready(node: Client) -> None:
    """Version, Status and RuntimeConfig say what a kubelet needs to hear."""
    version = node("Version", response=pb.VersionResponse)
    assert all((version.version, version.runtime_name, version.runtime_version))
    assert version.runtime_api_version == "v1"
    conditions = node("Status", response=pb.StatusResponse).status.conditions
    assert {(c.type, c.status) for c in conditions} == {("RuntimeReady", True), ("NetworkReady", True)}
    assert node("RuntimeConfig", response=pb.RuntimeConfigResponse).linux.cgroup_driver == pb.CGROUPFS


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
