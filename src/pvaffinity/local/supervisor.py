"""One supervisor per cluster: outlives nothing, leaves nothing.

``python -m pvaffinity.local.supervisor DIRECTORY`` reads ``spec.json`` there and splits in two. The outer part (this
module) stays in the host's namespaces: it holds the API server's port, watches the owner and answers on
``control.sock``. The inner part (:mod:`pvaffinity.local.inner`) runs the daemons in namespaces of their own. When the
owner ends, in whatever way, the outer part stops the cluster and removes its directory; when the outer part ends, the
kernel ends the inner part, and with it everything inside.

On its standard output it says, in JSON lines, ``port``, ``progress``, and at last ``ready`` or ``failed``; on its
standard input it takes the names of conditions its creator has brought about (``certificates``).
"""

from __future__ import annotations

__all__ = ["main"]

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from pvaffinity.local import inner, namespaces
from pvaffinity.local.daemon import tail
from pvaffinity.local.orders import Orders, answer
from pvaffinity.local.owner import Owner, remove_tree, wait_for

_STOP_SECONDS = 5.0


class _Supervisor:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.spec: dict[str, Any] = json.loads((directory / "spec.json").read_text(encoding="utf-8"))
        self.owner = Owner(**self.spec["owner"])
        self.selector = selectors.DefaultSelector()
        self.waiting: dict[int, socket.socket] = {}  # orders passed on, by id, and who asked
        self.state = "starting"
        self.inner = 0
        self.ids = 0
        self.channel: socket.socket | None = None
        self.stopping: list[socket.socket] | None = None
        self.watched: int | None = None
        self.disowned = False

    def run(self) -> int:
        try:
            self.listener = socket.socket()
            self.listener.bind(("127.0.0.1", 0))
            self.listener.listen(256)
            control = socket.socket(socket.AF_UNIX)
            control.bind(str(self.directory / "control.sock"))
            control.listen(16)
        except OSError as error:
            return self._fail(f"no port of 127.0.0.1, or no socket in {self.directory}, can be had: {error.strerror}")
        self._say(event="port", port=self.listener.getsockname()[1])
        reader, writer = socket.socketpair()
        for end in (reader, writer):
            end.setblocking(False)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self._stop())
        register = self.selector.register
        register(reader, selectors.EVENT_READ, lambda: self._drain(reader))
        self.orders = Orders(self.selector, control, self._order)
        register(sys.stdin.fileno(), selectors.EVENT_READ, self._creator)
        self.watched = self.owner.descriptor()
        if self.watched is not None:
            register(self.watched, selectors.EVENT_READ, self._stop)
        elif not self.owner.alive:
            self._stop()
        if self.stopping is None and not self._enter(isolated=True):
            return 1
        while self.stopping is None:
            poll = self.watched is None and not self.disowned  # a kernel without pidfd_open
            for key, _ in self.selector.select(0.5 if poll else None):
                key.data()
            if poll and not self.owner.alive:
                self._stop()
        return self._finish()

    # -- the inner part

    def _enter(self, isolated: bool) -> bool:
        """Fork the inner part into namespaces of its own; a middle process makes them, since unshare needs a fork."""
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        middle = os.fork()
        if middle == 0:
            self._middle(mine, theirs, isolated)
        theirs.close()
        first = json.loads(mine.recv(1 << 16) or b"{}")
        os.waitpid(middle, 0)
        if "pid" not in first:
            self._fail(first.get("what", "the cluster's namespaces cannot be made"), kind="namespaces")
            return False
        self.inner, self.channel = first["pid"], mine
        mine.send(b'{"do": "go"}')
        for what in self._conditions:  # said before this inner part was there
            mine.send(json.dumps({"do": "done", "what": what}).encode())
        self.selector.register(mine, selectors.EVENT_READ, self._from_inner)
        return True

    def _middle(self, mine: socket.socket, theirs: socket.socket, isolated: bool) -> None:
        try:
            mine.close()
            namespaces.enter_cluster(processes=isolated)
            pid = os.fork()
            if pid:
                theirs.send(json.dumps({"pid": pid}).encode())
                os._exit(0)
            signal.set_wakeup_fd(-1)
            for descriptor in list(self.selector.get_map()):
                if isinstance(descriptor, int) and descriptor > 2:
                    with contextlib.suppress(OSError):
                        os.close(descriptor)
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(2, 1)
            inner.run(self.directory, self.spec, theirs, self.listener, isolated)
        except namespaces.NamespaceError as error:
            what = f"this machine does not let us {error.step}: {error.strerror}"
            theirs.send(json.dumps({"what": what}).encode())
        finally:
            os._exit(1)

    def _from_inner(self) -> None:
        assert self.channel is not None
        message = self.channel.recv(1 << 17)
        if not message:
            self._inner_died()
            return
        said = json.loads(message)
        if said["event"] == "masked":
            self._forget_inner()
            if not self._enter(isolated=False):
                self._stop()
        elif said["event"] == "reply":
            asker = self.waiting.pop(said.pop("id"), None)
            if asker is not None:
                said.pop("event")
                answer(asker, said | {"supervisor": os.getpid()})
        else:
            if said["event"] in ("ready", "failed"):
                self.state = said["event"]
            if not self._say(**said) and self.state != "ready":
                self._stop()  # whoever wanted the cluster is gone
            if self.state == "ready":
                self._close_stdout()
                self.listener.close()
            if self.state == "failed":
                self._stop()

    def _forget_inner(self) -> None:
        assert self.channel is not None
        self.selector.unregister(self.channel)
        self.channel.close()
        self.channel = None
        os.waitpid(self.inner, 0)
        self.inner = 0

    def _inner_died(self) -> None:
        self._forget_inner()
        print(f"{time.strftime('%H:%M:%S')} the inner part ended unexpectedly", file=sys.stderr, flush=True)
        for asker in self.waiting.values():
            answer(asker, {"state": "dead", "error": "the cluster has ended unexpectedly"})
        self.waiting.clear()
        self.orders.hang_up_all()
        if self.state == "starting":
            log = tail(self.directory / "logs" / "supervisor.log")
            self._say(event="failed", what="the cluster ended unexpectedly while it started", log=log)
            self._stop()
        self.state = "dead"  # the directory stays, for its logs, until the owner deletes it or ends

    # -- the creator and the control socket

    def _creator(self) -> None:
        data = os.read(0, 4096)
        if not data:
            self.selector.unregister(0)
            if self.state == "starting" and "certificates" not in self._conditions:
                self._stop()
            return
        for what in data.decode().split():
            self._conditions.add(what)
            if self.channel is not None:
                self.channel.send(json.dumps({"do": "done", "what": what}).encode())

    _conditions: set[str] = set()  # noqa: RUF012 - one supervisor per process

    def _order(self, client: socket.socket, order: dict[str, Any]) -> None:
        kind = order["do"]
        if kind == "stop":
            self._stop(client)
        elif kind == "disown":
            self._disown()
            answer(client, {"ok": True})
        elif self.channel is None:
            answer(client, {"state": self.state, "supervisor": os.getpid(), "error": "the cluster has ended"})
        else:
            self.ids += 1
            self.waiting[self.ids] = client
            self.channel.send(json.dumps(order | {"id": self.ids}).encode())

    def _disown(self) -> None:
        """From now on only an order ends the cluster."""
        self.disowned = True
        if self.watched is not None:
            self.selector.unregister(self.watched)
            os.close(self.watched)
            self.watched = None

    # -- the end

    def _stop(self, asker: socket.socket | None = None) -> None:
        self.stopping = [*(self.stopping or []), *([asker] if asker else [])]

    def _finish(self) -> int:
        if self.channel is not None:
            with contextlib.suppress(OSError):
                self.channel.send(b'{"do": "stop"}')
        if self.inner and not wait_for(self.inner, _STOP_SECONDS):
            os.kill(self.inner, signal.SIGKILL)
            os.waitpid(self.inner, 0)
        remove_tree(self.directory)
        for asker in self.stopping or ():
            answer(asker, {"ok": True})
        return 0 if self.state != "failed" else 1

    def _fail(self, what: str, **more: str) -> int:
        self.state = "failed"
        self._say(event="failed", what=what, **more)
        remove_tree(self.directory)
        return 1

    def _say(self, **message: Any) -> bool:
        try:
            os.write(1, json.dumps(message).encode() + b"\n")
        except OSError:
            return False
        return True

    def _close_stdout(self) -> None:
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1):
            if descriptor == 0:
                with contextlib.suppress(KeyError):
                    self.selector.unregister(0)
            os.dup2(null, descriptor)

    @staticmethod
    def _drain(reader: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            while reader.recv(4096):
                pass


def main() -> None:
    """Detach from the creator and serve until the end."""
    directory = Path(sys.argv[1])
    if os.fork():
        os._exit(0)
    os.chdir("/")
    namespaces.subreaper()
    os._exit(_Supervisor(directory).run())


if __name__ == "__main__":
    main()
