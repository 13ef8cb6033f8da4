"""Containers of the container runtime simulator: their life, and every way to its end."""

from __future__ import annotations

import signal
import time

import pytest

from pvaffinity.local.cri import cri_pb2 as pb
from selftests.simulated import Client


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


def test_update_resources(node: Client) -> None:
    """Updated limits show in the status; those not named keep their value."""
    before = pb.LinuxContainerResources(cpu_shares=2, memory_limit_in_bytes=10)
    container = node.start(node.pod(), linux=pb.LinuxContainerConfig(resources=before))
    update = pb.LinuxContainerResources(memory_limit_in_bytes=20)
    node("UpdateContainerResources", pb.UpdateContainerResourcesRequest(container_id=container, linux=update))
    resources = node.status(container).resources.linux
    assert (resources.cpu_shares, resources.memory_limit_in_bytes) == (2, 20)
