"""Pods of the container runtime simulator: their life, their addresses, and how they are found."""

from __future__ import annotations

import time

from pvaffinity.local.cri import cri_pb2 as pb
from selftests.simulated import Client

NODE_NETWORK = "127.244.0."  # of the first node; all of 127.0.0.0/8 is local on Linux


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
