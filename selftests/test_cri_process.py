"""The simulator's process: its sockets, its end, its arguments, its crashes; and the generated messages."""

from __future__ import annotations

import asyncio
import contextlib
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

from pvaffinity.errors import UserError
from pvaffinity.local.cri import cri_pb2 as pb
from pvaffinity.local.cri.__main__ import _nodes, _parse
from pvaffinity.local.cri.compile_proto import compile_descriptor
from pvaffinity.local.cri.rpc import Method
from pvaffinity.local.cri.server import _behaviour, check_socket


@pytest.fixture
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="pv"))  # short: Unix sockets lie in it
    yield path
    shutil.rmtree(path)


@contextlib.contextmanager
def simulator(*arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """The simulator, serving; killed at the end if it still runs."""
    command = [sys.executable, "-m", "pvaffinity.local.cri", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "serving 1\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ends_on_signal(directory: Path, number: signal.Signals) -> None:
    """A signal ends it, also in the middle of a call, with exit code 0 and no socket left; 3 s suit a busy machine."""
    path = directory / "n.sock"
    with simulator(directory, f"n={path}") as process:
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
            assert process.wait(60) == 0
            assert time.monotonic() - began < 30  # the command would have run for 60 s
            assert waiting.exception(30).code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        assert not path.exists()


def test_a_stale_socket_is_replaced(directory: Path) -> None:
    """A socket file that a killed simulator left behind does not keep the next one from starting."""
    path = directory / "sub" / "n.sock"
    for _ in range(2):
        with simulator(directory, f"n={path}") as process:
            process.kill()
        assert path.exists()


def test_a_served_socket_is_left_alone(directory: Path) -> None:
    """A socket at which another process answers is neither removed nor taken."""
    path = directory / "n.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(os.fsencode(path))
        other.listen()
        with pytest.raises(UserError, match="another process serves"):
            check_socket(path)
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
def test_bad_arguments(directory: Path, arguments: list[str], text: str) -> None:
    """Arguments that cannot be used are refused, before anything is served or removed."""
    (directory / "file").write_text("precious")
    with pytest.raises(UserError, match=text):
        _nodes(_parse([argument.replace("{}", str(directory)) for argument in arguments]))
    assert (directory / "file").read_text() == "precious"


def test_refusal(tmp_path: Path) -> None:
    """A refusal is two lines on stderr, what is wrong and how to fix it, and exit code 2."""
    command = [sys.executable, "-m", "pvaffinity.local.cri", str(tmp_path), "n="]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 2
    assert "to fix: write NODE=SOCKET" in done.stderr


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
