"""What is seen of a simulated container from outside: its logs, its ports, commands in it."""

from __future__ import annotations

import json
import re
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from pvaffinity.local.cri import cri_pb2 as pb
from selftests.awaiting import eventually
from selftests.simulated import Client


def test_log_format(node: Client, tmp_path: Path) -> None:
    """Logs are CRI lines, long lines in parts, one file per attempt; a rotated log begins anew."""
    pod = node.pod(logs=tmp_path / "logs")
    text = f"echo one; echo {'x' * 20000}; sleep soon"
    container = node.start(pod, "sh", "-c", text, log_path="c/0.log")
    assert node.ended(container).log_path == str(tmp_path / "logs/c/0.log")
    lines = (tmp_path / "logs/c/0.log").read_text().splitlines()
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
    log = tmp_path / "logs/c/1.log"
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
