"""Commands run inside a running container: exec probes and lifecycle hooks."""

from __future__ import annotations

__all__ = ["exec_sync"]

import asyncio

from pvaffinity.local.cri import cri_pb2 as pb
from pvaffinity.local.cri.errors import DeadlineExceededError, FailedPreconditionError, InvalidArgumentError
from pvaffinity.local.cri.language import command_line
from pvaffinity.local.cri.objects import Container

_KILLED = 137


async def exec_sync(container: Container, argv: list[str], timeout: float) -> pb.ExecSyncResponse:
    """Run the command and answer with its output and exit code; 137 if the container ends meanwhile.

    Args:
        container: must be running.
        argv: the command, in the language of :mod:`.shell`; commands it does not know succeed.
        timeout: in seconds, 0 for none.

    Raises:
        InvalidArgumentError: the command is empty.
        FailedPreconditionError: the container does not run.
        DeadlineExceededError: the command took longer than the timeout; the kubelet's probes rely on this code.
    """
    if not argv:
        raise InvalidArgumentError("the request names no command")
    if not container.running:
        raise FailedPreconditionError(f"container {container.id} does not run")
    output: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}

    def write(stream: str, text: str) -> None:
        output[stream] += text.encode("utf-8", "surrogateescape") + b"\n"

    command = asyncio.ensure_future(container.shell(write, unknown_succeeds=True).run(command_line(argv)))
    ended = asyncio.ensure_future(container.exited.wait())
    try:
        done, _ = await asyncio.wait({command, ended}, timeout=timeout or None, return_when=asyncio.FIRST_COMPLETED)
    finally:
        command.cancel()
        ended.cancel()
    if not done:
        raise DeadlineExceededError(f"command {argv} timed out after {timeout} s")
    code = command.result() if command in done else _KILLED
    return pb.ExecSyncResponse(stdout=bytes(output["stdout"]), stderr=bytes(output["stderr"]), exit_code=code)
