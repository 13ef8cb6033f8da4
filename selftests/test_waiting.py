"""The waiting loop, over an in-process stand-in for the API client that can be told to fail as servers do."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import urllib3

from pvaffinity import waiting
from pvaffinity.budgets import BUDGETS, Budget, budget_of
from pvaffinity.conditions import (
    Condition,
    has_event,
    is_bound,
    is_gone,
    is_running,
    is_running_on,
    is_unschedulable,
    replacing,
)
from pvaffinity.errors import ApiError
from pvaffinity.objects import Obj, Ref
from pvaffinity.waiting import (
    NeverUnknown,
    NeverViolated,
    WaitError,
    WaitTerminal,
    WaitTimeout,
    WaitUnknown,
    never,
    until,
)

POD = Ref("Pod", "reader", "ns")


class _Server:
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


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_SLICE", 0.2)
    monkeypatch.setattr(waiting, "_PAUSE", 0.01)
    monkeypatch.setattr(waiting, "_LAST", 0.05)


def later(*actions: Any, after: float = 0.05) -> None:
    def run() -> None:
        for action in actions:
            time.sleep(after)
            action()

    threading.Thread(target=run, daemon=True).start()


def up(name: str = "c") -> list[Obj]:
    return [{"name": name, "state": {"running": {}}}]


def run(server: _Server, node: str = "node-1", **more: Any) -> None:
    server.put(phase="Running", node=node, containerStatuses=up(), **more)


def wait(server: _Server, condition: Condition = is_running, budget: float = 30.0, **more: Any) -> Obj:
    return until(server, POD, condition, budget, **more)  # type: ignore[arg-type]


def test_met_at_once() -> None:
    """A state that is there already needs one list and no watch."""
    server = _Server()
    run(server)
    assert wait(server)["spec"]["nodeName"] == "node-1"
    assert (server.lists, server.watches) == (1, 0)
    assert server.asked == [("Pod", "ns", "metadata.name=reader")]


def test_met_later_by_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that comes while watching is seen at once, without another list."""
    monkeypatch.setattr(waiting, "_SLICE", 30)
    server = _Server()
    server.put(phase="Pending")
    later(lambda: run(server), after=0.1)
    wait(server, budget=30)
    assert (server.lists, server.watches) == (1, 1)


def test_object_that_is_made_later() -> None:
    """An object that does not exist yet may be waited for."""
    server = _Server()
    later(lambda: server.put(phase="Pending"), lambda: run(server))
    wait(server)


def test_history_that_expired() -> None:
    """410 Expired leads to a new list."""
    server = _Server("410")
    server.put(phase="Pending")
    server.unseen = lambda: run(server)
    wait(server)
    assert server.lists == 2


@pytest.mark.parametrize("fault", ["quiet", "broken", "503"])
def test_streams_that_end(fault: str) -> None:
    """A stream that ends quietly, breaks or is refused for now is no news: the object is looked at again."""
    server = _Server(fault, fault, fault)
    server.put(phase="Pending")
    later(lambda: run(server), after=0.1)
    wait(server)
    assert server.lists >= 2


def test_a_server_that_is_down_is_not_hammered() -> None:
    """Streams that end at once are opened again after a pause; what was not to be seen is not said to be absent."""
    server = _Server(*["broken"] * 1000)
    server.put(phase="Pending")
    server.list_faults.extend([urllib3.exceptions.ProtocolError("connection reset")] * 500)
    with pytest.raises(WaitUnknown, match=r"(?s)nor looked at at its end.*trouble     ProtocolError: connection reset"):
        wait(server, budget=0.3)
    assert server.lists < 40


def test_stalled_stream() -> None:
    """A stream that says nothing more costs one slice, not the budget."""
    server = _Server("stall")
    server.put(phase="Pending")
    later(lambda: run(server), after=0.02)
    begun = time.monotonic()
    wait(server, budget=60)
    assert 0.15 < time.monotonic() - begun < 30


def test_change_in_the_last_moment() -> None:
    """When the budget is spent, the object is looked at once more."""
    server = _Server("stall")
    server.put(phase="Pending")
    server.unseen = lambda: run(server)
    wait(server, budget=0.15)


@pytest.mark.parametrize("code", [429, 500, 0])
def test_a_server_that_stands_still_when_the_budget_ends(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """The last look is made again while it gets no answer, with pauses: it may be the decisive one."""
    monkeypatch.setattr(waiting, "_LAST", 30)
    monkeypatch.setattr(waiting, "_PAUSE", 0.05)
    fault = ApiError(code, "", "later") if code else urllib3.exceptions.ReadTimeoutError(None, "", "")  # type: ignore[arg-type]
    server = _Server("stall")
    server.put(phase="Pending")

    def stand_still() -> None:
        run(server)
        server.list_faults.extend([fault] * 4)

    server.unseen = stand_still
    begun = time.monotonic()
    wait(server, budget=0.15)
    assert time.monotonic() - begun >= 0.15 + 4 * 0.05
    assert server.lists == 6


def test_the_budget_is_kept() -> None:
    """A wait ends when its budget does, not when the server ends the stream."""
    server = _Server()
    server.put(phase="Pending")
    begun = time.monotonic()
    with pytest.raises(WaitTimeout):
        wait(server, budget=0.15)
    assert 0.15 <= time.monotonic() - begun < 0.9


def test_terminal_state() -> None:
    """A pod on another node ends the wait long before its budget."""
    server = _Server()
    server.put(phase="Pending")
    later(lambda: server.put(phase="Pending", node="node-2"))
    begun = time.monotonic()
    with pytest.raises(WaitTerminal, match="can no longer become running on a node in us-east1-c"):
        wait(server, is_running_on(["node-1"], "in us-east1-c"), budget=30)
    assert time.monotonic() - begun < 15


def test_refusal_is_raised() -> None:
    """Who may not look is told so at once."""
    server = _Server("403")
    with pytest.raises(ApiError, match="403 Forbidden"):
        wait(server)


def test_object_deleted() -> None:
    """Deletion ends a wait for anything but deletion."""
    server = _Server()
    server.put(phase="Pending")
    later(server.drop)
    with pytest.raises(WaitTerminal, match="deleted: UID u1 is gone"):
        wait(server)
    assert server.lists == 1  # seen by the watch, not by a later list


@pytest.mark.parametrize("fault", ["", "stall"])
def test_object_replaced(fault: str) -> None:
    """Another object of the same name is not the one waited for, even where the deletion itself was missed."""
    server = _Server(fault)
    server.put(phase="Pending")

    def replace() -> None:
        server.drop()
        run(server, uid="u2")

    later(replace)
    with pytest.raises(WaitTerminal, match=r"deleted: UID u1 is gone|replaced: UID u2 instead of u1"):
        wait(server)


def test_replacement_awaited() -> None:
    """The next object of a name can be waited for; the old one does not count, however well it runs."""
    server = _Server()
    run(server)
    later(lambda: run(server, leaving=True), server.drop, lambda: run(server, uid="u2", node="node-2"))
    assert wait(server, replacing("u1", is_running))["metadata"]["uid"] == "u2"


@pytest.mark.parametrize("again", [False, True])
def test_gone(again: bool) -> None:
    """Gone is met by deletion, and by replacement."""
    server = _Server("stall" if again else "")
    server.put(phase="Pending")
    later(server.drop, *([lambda: server.put(uid="u2")] if again else []), after=0.02)
    assert wait(server, is_gone)["metadata"]["uid"] == ("u2" if again else "u1")


def test_gone_already() -> None:
    """What is not there is gone."""
    assert wait(_Server(), is_gone) == {}


def test_event() -> None:
    """An event about the object is found by reason, text and UID, in the object's namespace."""
    server = _Server("one")
    later(
        lambda: server.event("FailedMount", "other"),
        lambda: server.event("FailedMount", "no matching NodeSelectorTerms", uid="u0"),
        lambda: server.event("FailedMount", "no matching NodeSelectorTerms"),
    )
    event = wait(server, has_event("FailedMount", "no matching", uid="u1"))
    assert event["involvedObject"]["uid"] == "u1"
    assert server.asked[0] == ("Event", "ns", "involvedObject.kind=Pod,involvedObject.name=reader")


def test_events_of_cluster_objects() -> None:
    """Events about objects without namespace lie in the namespace default."""
    server = _Server()
    server.event("Recycled", "x")
    until(server, Ref("PersistentVolume", "pv"), has_event("Recycled"), 1)  # type: ignore[arg-type]
    assert server.asked == [("Event", "default", "involvedObject.kind=PersistentVolume,involvedObject.name=pv")]


def unscheduled(server: _Server) -> None:
    refusal = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node fits"}
    server.put(phase="Pending", conditions=[refusal])


def test_message_has_four_parts() -> None:
    """A time-out says what was awaited and in which budget, what was last seen, what happened, where evidence lies."""
    server = _Server("stall")
    server.put(phase="Pending")
    server.unseen = lambda: unscheduled(server)
    with pytest.raises(WaitTimeout) as caught:
        wait(server, budget=Budget("schedule", 0.3, "standard", "", ""), evidence=lambda: "pod.yaml pv.yaml")  # type: ignore[arg-type]
    what, seen, timeline, evidence = str(caught.value).splitlines()
    assert what == "Pod ns/reader was not running within 0.3 s (budget: schedule)"
    assert re.fullmatch(
        r"  last seen   \d looks, newest \d+\.\d s ago: Pending, PodScheduled=False \(Unschedulable\): no node fits",
        seen,
    )
    assert re.match(r"  timeline    \+\d+\.\d s Pending · \+\d+\.", timeline)
    assert timeline.endswith("no node fits · no change since")
    assert evidence == "  evidence    pod.yaml pv.yaml"
    assert caught.value.last is not None
    assert isinstance(caught.value, AssertionError)


def test_message_with_a_timeline() -> None:
    """Where the test keeps a timeline, the message shows that one."""

    class Timeline:
        def render(self, limit: int = 0) -> str:
            return "+0.1 s PV patched\n+0.2 s nothing"

    with pytest.raises(
        WaitTimeout, match=r"  timeline    \+0.1 s PV patched\n {14}\+0.2 s nothing\n  evidence    none"
    ):
        wait(_Server(), budget=0, timeline=Timeline())


def refrain(server: _Server, during: float = 0.3, condition: Condition = is_running) -> Obj | None:
    return never(server, POD, condition, during)  # type: ignore[arg-type]


def test_never_violated() -> None:
    """A state that must never be is noticed even if it lasts no time at all."""
    server = _Server("stall")

    def flash() -> None:
        run(server)
        server.put(phase="Pending")

    server.put(phase="Pending")
    later(flash)
    with pytest.raises(NeverViolated, match="was running, which it must not be"):
        refrain(server, 30)


def test_never_looks_a_last_time() -> None:
    """A state that a stalled stream kept back is found by the last look."""
    server = _Server("stall")
    server.put(phase="Pending")
    server.unseen = lambda: run(server)
    with pytest.raises(NeverViolated):
        refrain(server, 0.15)


def test_never_sees_what_was_while_the_server_was_busy() -> None:
    """A refusal for now does not make it skip the history meanwhile."""
    server = _Server("stall", "503")

    def flash() -> None:
        run(server)
        server.put(phase="Pending")

    server.put(phase="Pending")
    later(flash)
    with pytest.raises(NeverViolated):
        refrain(server, 30)


def test_never_holds_for_the_whole_time() -> None:
    """Where nothing happens, the whole time is waited and the object given back."""
    server = _Server("quiet", "one", "stall")
    server.put(phase="Pending")
    later(lambda: server.put(phase="Pending"))
    server.unseen = lambda: unscheduled(server)
    begun = time.monotonic()
    last = refrain(server)
    assert time.monotonic() - begun >= 0.3
    assert last is not None
    assert last["status"]["conditions"]


@pytest.mark.parametrize("faults", [(), ("503",)])
def test_never_ends_early_when_it_cannot_be_any_more(faults: tuple[str, ...]) -> None:
    """The terminal state of a condition settles the matter, also if a stream broke before it that was resumed."""
    server = _Server(*faults)
    server.put(phase="Pending")
    later(lambda: run(server, node="node-2"))
    begun = time.monotonic()
    refrain(server, 20, is_running_on(["node-1"], "that was lost"))
    assert time.monotonic() - begun < 15


@pytest.mark.parametrize("fault", ["410", "broken"])
def test_never_does_not_claim_what_it_has_not_seen(fault: str) -> None:
    """Where part of the history is lost, the answer is unknown and not yes."""
    server = _Server(*[fault] * 1000)
    server.put(phase="Pending")
    if fault == "broken":
        server.unseen = lambda: server.list_faults.extend([urllib3.exceptions.ProtocolError("reset")] * 500)
    with pytest.raises(NeverUnknown, match="may have been running"):
        refrain(server)


def test_never_is_not_said_where_no_stream_could_be_had() -> None:
    """A state between two looks is not ruled out by them: the object has changed, and nobody saw how."""
    server = _Server(*["broken"] * 1000)

    def flash() -> None:
        run(server)
        server.put(phase="Pending")

    server.put(phase="Pending")
    server.unseen = flash
    with pytest.raises(NeverUnknown, match="may have been running"):
        refrain(server)


def test_never_is_said_where_a_stream_broke_and_nothing_had_changed() -> None:
    """The last look shows the version that was seen before: there is nothing in between."""
    server = _Server(*["broken"] * 1000)
    server.put(phase="Pending")
    refrain(server)


def test_never_is_said_where_only_the_last_look_came_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes after its time, and before a server that stood still gives the last look, is not looked for."""
    monkeypatch.setattr(waiting, "_LAST", 30)
    server = _Server("broken", "stall", "stall")

    def late() -> None:
        unscheduled(server)
        server.list_faults.extend([urllib3.exceptions.ProtocolError("reset")] * 3)

    server.put(phase="Pending")
    server.unseen = lambda: None if server.watches < 3 else late()
    refrain(server)


def test_never_holds_for_its_time_from_the_first_look_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that stood still at first leaves no less to see."""
    monkeypatch.setattr(waiting, "_LAST", 30)
    server = _Server()
    server.put(phase="Pending")
    server.list_faults.extend([urllib3.exceptions.ProtocolError("reset")] * 20)
    begun = time.monotonic()
    refrain(server, 0.1)
    assert time.monotonic() - begun >= 0.2


def test_never_on_an_object_that_vanishes() -> None:
    """An object that goes away proves nothing about what it would have done."""
    server = _Server()
    server.put(phase="Pending")
    later(server.drop)
    with pytest.raises(WaitTerminal, match="vanished while it was to be seen never to be running"):
        refrain(server, 30)


def test_conditions_bring_their_budgets() -> None:
    """Every condition names a budget of the table; unknown names are errors."""
    for condition in (is_bound, is_gone, is_running, is_unschedulable, has_event("x"), is_running_on([], "x")):
        assert condition.budget in BUDGETS
    with pytest.raises(KeyError):
        budget_of("nosuch")
    assert budget_of(3).seconds == 3


def test_budgets_can_tell_a_retry_from_the_flush() -> None:
    """The schedule budget lies far below the five minutes after which the scheduler retries without cause."""
    assert BUDGETS["schedule"].seconds <= 60
    assert BUDGETS["recover-slow"].seconds >= 123 + 122
    assert all(b.kind in ("standard", "patience") and b.awaited and b.source for b in BUDGETS.values())


def test_errors_are_assertions() -> None:
    """A failed wait is a failed assertion, not a broken test."""
    assert issubclass(WaitError, AssertionError)
