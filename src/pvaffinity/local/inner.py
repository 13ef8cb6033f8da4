"""The part of a cluster's supervisor that lives inside its namespaces and starts, watches and stops the daemons.

It is process 1 there: when it ends, the kernel ends everything inside. Single-threaded on purpose: it forks.
"""

from __future__ import annotations

__all__ = ["run"]

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pvaffinity.budgets import BUDGETS
from pvaffinity.local import namespaces, network
from pvaffinity.local.daemon import Daemon, DaemonSpec, StartError, stop_all, tail
from pvaffinity.local.parts import Parts
from pvaffinity.local.readiness import Readiness
from pvaffinity.local.usable import Usable

_TICK = 0.02
_START_SECONDS = 300.0  # more than any single daemon has
_USABLE_SECONDS = BUDGETS["usable"].seconds


def run(directory: Path, spec: dict[str, Any], channel: socket.socket, listener: socket.socket, isolated: bool) -> None:
    """Serve until told to stop; never returns. ``isolated`` says whether there is a process namespace of our own."""
    code = 1
    try:
        if json.loads(channel.recv(4096) or b"{}").get("do") != "go":
            os._exit(1)
        namespaces.die_with_parent()
        if isolated:
            try:
                namespaces.mount_proc()
            except namespaces.NamespaceError:
                channel.send(b'{"event": "masked"}')
                os._exit(0)
        else:
            namespaces.subreaper()
        with contextlib.suppress(namespaces.NamespaceError):
            namespaces.protect_sysctls()
        network.loopback_up()
        code = _Inner(directory, spec, channel, listener).serve()
    except BaseException as error:  # noqa: BLE001 - the last frame of a process that must not outlive it
        import traceback

        traceback.print_exc()
        with contextlib.suppress(OSError):
            channel.send(json.dumps({"event": "failed", "what": f"the supervisor failed: {error!r}"}).encode())
    finally:
        os._exit(code)


class _Inner:
    def __init__(self, directory: Path, spec: dict[str, Any], channel: socket.socket, listener: socket.socket) -> None:
        self.directory = directory
        self.channel = channel
        self.logs = directory / "logs"
        self.nodes = {node["name"]: node for node in spec["nodes"]}
        self.mounts: dict[str, int] = {}
        specs = [DaemonSpec.from_json(data) for data in spec["daemons"]]
        self.daemons = {s.name: Daemon(s, self.logs) for s in specs}
        self.stop_order: list[str] = spec["stop_order"]
        self.done: set[str] = set()
        self.helpers: dict[int, str] = {}
        self.parts = Parts(self.daemons, self._enter)
        self.state = "starting"
        self.usable: Usable | None = None
        if wanted := spec.get("usable"):
            access = Readiness(**wanted["access"])
            self.usable = Usable(access, tuple(wanted["nodes"]), wanted["labels"])
        self.started = time.monotonic()
        self.serving_since = 0.0
        target = spec["api"]
        self._helper("forward", lambda: _forward(listener, target["host"], target["port"]))
        listener.close()
        addresses = [network.API_ADDRESS, *(node["address"] for node in spec["nodes"])]
        self._helper("network", lambda: network.add_addresses(addresses))

    # -- helpers: forked, not executed

    def _helper(self, name: str, work: Callable[[], None]) -> None:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                namespaces.die_with_parent()
                signal.set_wakeup_fd(-1)
                for number in (signal.SIGTERM, signal.SIGCHLD):
                    signal.signal(number, signal.SIG_DFL)
                self.channel.close()
                work()
                code = 0
            except BaseException as error:  # noqa: BLE001 - reported by exit code and log
                print(f"{name}: {error!r}", file=sys.stderr, flush=True)
            finally:
                os._exit(code)
        self.helpers[pid] = name

    def _enter(self, node: str) -> Callable[[], None]:
        """Prepare, once, the node's file system; it is kept by a descriptor and outlives its kubelet."""
        if node not in self.mounts:
            mine, theirs = socket.socketpair()
            pid = os.fork()
            if pid == 0:
                try:
                    mine.close()
                    about = self.nodes[node]
                    namespaces.node_mounts(Path(about["state"]), Path(about["binary"]))
                    theirs.send(b"ok")
                    theirs.recv(1)
                except OSError as error:
                    step = getattr(error, "step", "prepare")
                    theirs.send(f"{step}: {error.strerror}".encode())
                finally:
                    os._exit(0)
            theirs.close()
            answer = mine.recv(4096).decode()
            if answer == "ok":
                self.mounts[node] = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
            mine.close()
            os.waitpid(pid, 0)
            if answer != "ok":
                raise StartError(f"the file system of node {node} cannot be made: {answer}", f"kubelet-{node}")
        descriptor = self.mounts[node]
        return lambda: namespaces.join_mounts(descriptor)

    # -- the loop

    def serve(self) -> int:
        reader, writer = socket.socketpair()
        for end in (reader, writer):
            end.setblocking(False)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # only the outer part and the kernel decide
        selector = selectors.DefaultSelector()
        selector.register(self.channel, selectors.EVENT_READ)
        selector.register(reader, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select(self._patience)}
            if reader in ready:
                with contextlib.suppress(BlockingIOError):
                    while reader.recv(4096):
                        pass
                self._reap()
            if self.channel in ready:
                message = self.channel.recv(1 << 16)
                if not message:  # the outer part is gone
                    self._stop()
                    return 1
                order = json.loads(message)
                if order["do"] == "stop":
                    self._stop()
                    return 0
                self._obey(order)
            if self.state == "starting":
                try:
                    self._advance()
                except StartError as error:
                    self.state = "failed"
                    self._say(event="failed", what=error.what, daemon=error.daemon, log=error.log)
            for answer in self.parts.answers():
                self._say(event="reply", **answer)

    @property
    def _patience(self) -> float | None:
        return _TICK if self.state == "starting" or self.parts.awaited else None

    def _advance(self) -> None:
        for name, daemon in self.daemons.items():
            if daemon.process is None and self.done.issuperset(daemon.spec.needs):
                self._say(event="progress", line=f"starting {name}")
                daemon.start(self._enter(daemon.spec.node) if daemon.spec.node else None)
            elif daemon.process is not None and daemon.check():
                self.done.add(name)
        if not self.done.issuperset(self.daemons):
            if time.monotonic() - self.started > _START_SECONDS:
                waiting = [name for name, daemon in self.daemons.items() if daemon.process is None]
                needed = sorted({need for name in waiting for need in self.daemons[name].spec.needs} - self.done)
                what = f"the start stands still: {', '.join(waiting)} waits for {', '.join(needed)}"
                raise StartError(what, "supervisor", tail(self.logs / "supervisor.log"))
            return
        self.serving_since = self.serving_since or time.monotonic()
        missing = self.usable.missing() if self.usable else ""
        if not missing:
            self.state = "ready"
            self._say(event="ready", seconds=round(time.monotonic() - self.started, 2))
        elif time.monotonic() - self.serving_since > _USABLE_SECONDS:
            node = missing.removeprefix("node ").split()[0]
            suspect = self.daemons.get(f"kubelet-{node}") or self.daemons["kube-controller-manager"]
            what = f"the cluster was not usable within {_USABLE_SECONDS:g} s: {missing}"
            raise StartError(what, suspect.spec.name, tail(suspect.log))

    def _obey(self, order: dict[str, Any]) -> None:
        reply: dict[str, Any] = {"event": "reply", "id": order.get("id")}
        if order["do"] == "done":
            self.done.add(order["what"])
            return
        if order["do"] == "status":
            reply["state"] = self.state
            reply["daemons"] = {
                name: {"running": d.running, "pid": d.process.pid if d.process else None}
                for name, d in self.daemons.items()
            }
        else:
            answer = self.parts.obey(order, self.state)
            if answer is None:
                return  # later, when what it starts is ready
            reply |= answer
        self._say(**reply)

    def _reap(self) -> None:
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            owner = next((d for d in self.daemons.values() if d.process and d.process.pid == ended.si_pid), None)
            if owner is not None and owner.process is not None:
                code = owner.process.wait()
                print(f"{time.strftime('%H:%M:%S')} {owner.spec.name} ended ({code})", file=sys.stderr, flush=True)
                continue
            os.waitpid(ended.si_pid, 0)
            name = self.helpers.pop(ended.si_pid, "")
            if name == "network" and ended.si_status == 0:
                self.done.add("network")
            elif name and self.state == "starting":
                self.state = "failed"
                log = tail(self.logs / "supervisor.log")
                self._say(event="failed", what=f"the cluster's {name} could not be set up", daemon=name, log=log)
            elif name == "forward":
                raise RuntimeError("the way into the cluster's network is gone")

    def _stop(self) -> None:
        known = [self.daemons[name] for name in self.stop_order]
        stop_all([*(d for d in self.daemons.values() if d not in known), *known])
        for pid in self.helpers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _say(self, **message: Any) -> None:
        with contextlib.suppress(OSError):
            self.channel.send(json.dumps(message).encode())


def _forward(listener: socket.socket, host: str, port: int) -> None:
    from pvaffinity.local.forward import forward  # asyncio: only this one process pays for it

    forward(listener, host, port)
