"""The simulator's process: its sockets, its end, its arguments, its crashes; and the generated messages."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2

from pvaffinity.local.cri import cri_pb2 as pb
from pvaffinity.local.cri.__main__ import main
from pvaffinity.local.cri.compile_proto import compile_descriptor
from pvaffinity.local.cri.rpc import Method
from pvaffinity.local.cri.server import _behaviour


@pytest.fixture
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="pv"))  # short: Unix sockets lie in it
    yield path
    shutil.rmtree(path)


def simulator(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pvaffinity.local.cri", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ends_on_signal(directory: Path, number: signal.Signals) -> None:
    """A signal ends it within a second, also in the middle of a call, with exit code 0 and no socket left."""
    path = directory / "n.sock"
    with simulator(directory, f"n={path}") as process:
        assert process.stdout
        assert process.stdout.readline() == "serving 1\n"
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
        with grpc.insecure_channel(f"unix:{path}") as channel:

            def call(name: str, request: Any) -> Any:
                method = channel.unary_unary(f"/runtime.v1.RuntimeService/{name}", type(request).SerializeToString)
                return method.future(request, timeout=30)

            metadata = pb.PodSandboxMetadata(name="p", namespace="n", uid="u")
            config = pb.PodSandboxConfig(metadata=metadata)
            data = call("RunPodSandbox", pb.RunPodSandboxRequest(config=config)).result()
            pod = pb.RunPodSandboxResponse.FromString(data).pod_sandbox_id
            container_config = pb.ContainerConfig(
                metadata=pb.ContainerMetadata(name="c"), image=pb.ImageSpec(image="i"), command=["heartbeat", "1"]
            )
            request = pb.CreateContainerRequest(pod_sandbox_id=pod, config=container_config)
            container = pb.CreateContainerResponse.FromString(call("CreateContainer", request).result()).container_id
            call("StartContainer", pb.ContainerRequest(container_id=container)).result()
            waiting = call("ExecSync", pb.ExecSyncRequest(container_id=container, cmd=["sleep", "60"]))
            call("Version", pb.Empty()).result()  # the server has the call before it by now
            began = time.monotonic()
            process.send_signal(number)
            assert process.wait(10) == 0
            assert time.monotonic() - began < 1
            assert waiting.exception(5).code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        assert not path.exists()


def test_a_stale_socket_is_replaced(directory: Path) -> None:
    """A socket file that a killed simulator left behind does not keep the next one from starting."""
    path = directory / "sub" / "n.sock"
    for _ in range(2):
        with simulator(directory, f"n={path}") as process:
            assert process.stdout
            assert process.stdout.readline() == "serving 1\n"
            process.kill()
        assert path.exists()


def test_a_served_socket_is_left_alone(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A socket at which another process answers is neither removed nor taken."""
    path = directory / "n.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(os.fsencode(path))
        other.listen()
        assert main([str(directory), f"n={path}"]) == 2
    assert "another process serves" in capsys.readouterr().err
    assert path.exists()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["{}/state", "n={}/" + "x" * 100 + ".sock"], "longer than 107 bytes"),
        (["{}/state", "n={}/file"], "is no socket"),
        (["{}/state", "n={}/file/n.sock"], "cannot be used"),
        (["{}/file", "n={}/n.sock"], "cannot be used"),
        (["{}/state", "n"], "write NODE=SOCKET"),
        (["{}/state", "n="], "write NODE=SOCKET"),
        (["{}/state", "n={}/a.sock", "n={}/b.sock"], "named twice"),
        (["{}/state", "n={}/a.sock", "m={}/a.sock"], "named twice"),
        (["--pod-network", "10.0.0.0/99", "{}/state", "n={}/a.sock"], "--pod-network"),
        (["--pod-network", "10.0.0.0/24", "{}/state", "n={}/a.sock", "m={}/b.sock"], "no /24 for each"),
    ],
)
def test_bad_arguments(directory: Path, arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Arguments that cannot be used are refused in two lines, what and how to fix it, and nothing is served."""
    (directory / "file").write_text("precious")
    assert main([argument.replace("{}", str(directory)) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert text in err
    assert "to fix:" in err
    assert len(err.splitlines()) == 2
    assert (directory / "file").read_text() == "precious"


class AbortedError(Exception):
    """What a call's context raises to end it."""


@dataclasses.dataclass
class Context:
    """Stands for gRPC's context of a call."""

    status: Any = None

    async def abort(self, code: Any, text: str) -> None:
        """End the call."""
        self.status = code.name, text
        raise AbortedError


def test_a_crash_is_answered() -> None:
    """An error in a handler becomes INTERNAL with its text, and goes no further."""

    async def broken(request: pb.Empty) -> pb.Empty:
        raise ZeroDivisionError("division")

    context = Context()
    with pytest.raises(AbortedError):
        asyncio.run(_behaviour("n", "Broken", Method(pb.Empty, broken))(b"", context))
    assert context.status == ("INTERNAL", "Broken: ZeroDivisionError: division")


def test_generated_messages_are_up_to_date(tmp_path: Path) -> None:
    """cri_pb2.py and its type stub are what cri.proto compiles to."""
    pytest.importorskip("grpc_tools")
    compiled = compile_descriptor(tmp_path)
    committed = descriptor_pb2.FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(committed)
    assert committed == compiled
    stub = Path(pb.__file__).with_suffix(".pyi").read_text()
    assert [m.name for m in compiled.message_type if f"class {m.name}(" not in stub] == []
    fields = {f.name for m in compiled.message_type for f in m.field}
    assert [name for name in fields if f"    {name}: " not in stub] == []
