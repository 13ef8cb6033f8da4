"""An in-process stand-in for the API client: one object's history, with streams that fail as servers' do."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import urllib3

from pvaffinity.conditions import Condition, is_running
from pvaffinity.errors import ApiError
from pvaffinity.objects import Obj, Ref
from pvaffinity.waiting import until
from pvaffinity.wire import Silence

POD = Ref("Pod", "reader", "ns")


class Server:
    """One object's history, with the faults of real streams on demand, one per watch."""

    def __init__(self, *faults: str) -> None:
        self.changed = threading.Condition()
        self.versions = itertools.count(100)
        self.version = "99"
        self.now: Obj | None = None
        self.log: list[tuple[str, Obj]] = []
        self.faults = deque(faults)
        self.list_faults: deque[Exception] = deque()
        self.lists = self.watches = 0
        self.asked: list[tuple[Any, ...]] = []
        self.unseen: Callable[[], None] = lambda: None
        self.silence = Silence()

    def put(self, uid: str = "u1", **status: Any) -> None:
        node = status.pop("node", None)
        leaving = {"deletionTimestamp": "now"} if status.pop("leaving", False) else {}
        with self.changed:
            self.version = str(next(self.versions))
            metadata = {"name": "reader", "namespace": "ns", "uid": uid, "resourceVersion": self.version, **leaving}
            spec = {"nodeName": node} if node else {}
            obj = {"kind": "Pod", "metadata": metadata, "spec": spec, "status": status}
            self.log.append(("ADDED" if self.now is None else "MODIFIED", obj))
            self.now = obj
            self.changed.notify_all()

    def event(self, reason: str, message: str, uid: str = "u1") -> None:
        with self.changed:
            self.version = str(next(self.versions))
            metadata = {"name": "e", "namespace": "ns", "uid": "e1", "resourceVersion": self.version}
            event = {"metadata": metadata, "reason": reason, "message": message, "involvedObject": {"uid": uid}}
            self.log.append(("ADDED", event))
            self.now = event
            self.changed.notify_all()

    def drop(self) -> None:
        with self.changed:
            assert self.now is not None
            self.version = str(next(self.versions))
            metadata = {**self.now["metadata"], "resourceVersion": self.version}
            self.log.append(("DELETED", {**self.now, "metadata": metadata}))
            self.now = None
            self.changed.notify_all()

    def snapshot(self, *where: Any, fields: str, timeout: float) -> tuple[list[Obj], str]:
        self.lists += 1
        self.asked.append((*where, fields))
        assert timeout > 0
        if self.list_faults:
            raise self.list_faults.popleft()
        with self.changed:
            return ([self.now] if self.now else []), self.version

    def watch(
        self, *where: Any, resource_version: str, fields: str, seconds: int, stop: Any
    ) -> Iterator[tuple[str, Obj]]:
        self.watches += 1
        fault = self.faults.popleft() if self.faults else ""
        if fault in ("410", "broken", "stall"):
            self.unseen()
        if fault == "410":
            raise ApiError(410, "Expired", "too old resource version")
        if fault == "403":
            raise ApiError(403, "Forbidden", "no")
        if fault == "503":
            raise ApiError(503, "ServiceUnavailable", "later")
        if fault == "broken":
            raise urllib3.exceptions.ProtocolError("connection reset")
        if fault == "quiet":
            return
        seen, deadline = int(resource_version), time.monotonic() + seconds
        while not stop.closed and time.monotonic() < deadline:
            with self.changed:
                news = [(t, o) for t, o in self.log if int(o["metadata"]["resourceVersion"]) > seen]
                if fault == "stall" or not news:
                    self.changed.wait(0.005)
                    continue
            for kind, obj in news:
                seen = int(obj["metadata"]["resourceVersion"])
                yield kind, obj
                if fault == "one":
                    return


def later(*actions: Any, after: float = 0.05) -> None:
    def run() -> None:
        for action in actions:
            time.sleep(after)
            action()

    threading.Thread(target=run, daemon=True).start()


def up(name: str = "c") -> list[Obj]:
    return [{"name": name, "state": {"running": {}}}]


def run(server: Server, node: str = "node-1", **more: Any) -> None:
    server.put(phase="Running", node=node, containerStatuses=up(), **more)


def flash(server: Server) -> None:
    """A pod that runs, but not any more as soon as it does."""
    run(server)
    server.put(phase="Pending")


def wait(server: Server, condition: Condition = is_running, budget: float = 30.0, **more: Any) -> Obj:
    return until(server, POD, condition, budget, **more)  # type: ignore[arg-type]


def unscheduled(server: Server) -> None:
    refusal = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node fits"}
    server.put(phase="Pending", conditions=[refusal])
