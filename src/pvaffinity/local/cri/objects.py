"""Sandboxes and containers of a node: state machines that change state only as the CRI says."""

from __future__ import annotations

__all__ = ["Container", "Sandbox"]

import asyncio
import contextlib
import secrets
import signal
import time
from collections.abc import Callable
from pathlib import Path

from pvaffinity.local.cri import cri_pb2 as pb
from pvaffinity.local.cri.errors import FailedPreconditionError
from pvaffinity.local.cri.listeners import PortListeners, declared_ports
from pvaffinity.local.cri.logs import ContainerLog
from pvaffinity.local.cri.process import Process, exit_reason
from pvaffinity.local.cri.shell import Shell

_SIGNALS = {
    number: signal.Signals[name.removeprefix("SIGNAL_")] for name, number in pb.Signal.items() if number
}  # the CRI numbers signals its own way


class Sandbox:
    """A pod's sandbox: ready from the start, until it is stopped; it never comes back.

    Args:
        config: as the kubelet sent it.
        address: the pod's IP, empty in the host network.
        handler: the runtime handler asked for.
    """

    def __init__(self, config: pb.PodSandboxConfig, address: str, handler: str) -> None:
        self.id = secrets.token_hex(32)
        self.config = config
        self.address = address
        self.handler = handler
        self.state = pb.SANDBOX_READY
        self.created_at = time.time_ns()

    @property
    def ready(self) -> bool:
        """Not yet stopped."""
        return self.state == pb.SANDBOX_READY

    def require_ready(self) -> None:
        """Raise FailedPreconditionError once it is stopped."""
        if not self.ready:
            raise FailedPreconditionError(f"sandbox {self.id} is stopped")


class Container:
    """created → running → exited; see the CRI's ``ContainerState``. Times are nanoseconds since the epoch, 0 for never.

    Args:
        sandbox: the sandbox it belongs to.
        config: as the kubelet sent it.
    """

    def __init__(self, sandbox: Sandbox, config: pb.ContainerConfig) -> None:
        self.id = secrets.token_hex(32)
        self.sandbox = sandbox
        self.config = config
        self.state = pb.CONTAINER_CREATED
        self.created_at = time.time_ns()
        self.started_at = self.finished_at = 0
        self.exit_code = 0
        directory, name = sandbox.config.log_directory, config.log_path
        self.log = ContainerLog(Path(directory, name) if directory and name else None)
        self._process: Process | None = None
        self._ports = PortListeners()
        self.exited = asyncio.Event()

    @property
    def running(self) -> bool:
        """Started and not yet exited."""
        return self.state == pb.CONTAINER_RUNNING

    @property
    def reason(self) -> str:
        """Why it exited, empty before."""
        return exit_reason(self.exit_code) if self.state == pb.CONTAINER_EXITED else ""

    @property
    def stop_signal(self) -> signal.Signals:
        """The signal that asks it to stop: SIGTERM unless its configuration names one that the simulator knows."""
        return _SIGNALS.get(self.config.stop_signal, signal.SIGTERM)

    def shell(self, write: Callable[[str, str], None], *, unknown_succeeds: bool = False) -> Shell:
        """A shell with the environment of the container."""
        pod = self.sandbox.config
        hostname = pod.hostname or pod.metadata.name  # in the host network the kubelet sends none
        env = {"HOSTNAME": hostname}
        env.update((entry.key, entry.value.decode("utf-8", "surrogateescape")) for entry in self.config.envs)
        return Shell(write, env, hostname, unknown_succeeds=unknown_succeeds)

    async def start(self, *, listen: bool) -> None:
        """Run its command and, if wanted, open its ports.

        Raises:
            FailedPreconditionError: it was started before, or its sandbox is stopped.
        """
        if self.state != pb.CONTAINER_CREATED:
            raise FailedPreconditionError(f"container {self.id} is in state {pb.ContainerState.Name(self.state)}")
        self.sandbox.require_ready()
        self.log.open()
        self._process = Process([*self.config.command, *self.config.args], self.shell(self.log.write), self._end)
        self.state, self.started_at = pb.CONTAINER_RUNNING, time.time_ns()
        if listen and self.sandbox.address:
            await self._ports.open(self.sandbox.address, declared_ports(self.config.annotations))
            if self.exited.is_set():
                self._ports.close()

    async def stop(self, grace: float) -> None:
        """Send the stop signal, wait up to ``grace`` seconds for the end, then kill; nothing if it does not run."""
        if self._process is None or not self.running:
            return
        if grace > 0:
            self._process.deliver(self.stop_signal)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await self.exited.wait()
        self.kill()

    def kill(self) -> None:
        """End it now, with SIGKILL; nothing if it does not run."""
        if self._process:
            self._process.deliver(signal.SIGKILL)

    def _end(self, code: int) -> None:
        self.state, self.finished_at, self.exit_code = pb.CONTAINER_EXITED, time.time_ns(), code
        self._ports.close()
        self.exited.set()
