"""What must never be is watched for without a gap; where there was one, nothing is claimed."""

from __future__ import annotations

import time

import pytest
import urllib3

from pvaffinity import looking
from pvaffinity.conditions import Condition, is_running, is_running_on
from pvaffinity.objects import Obj
from pvaffinity.waiting import NeverUnknown, NeverViolated, WaitTerminal, never
from selftests.watched import POD, Server, flash, later, run, unscheduled

pytestmark = pytest.mark.usefixtures("quick_waits")


def refrain(server: Server, during: float = 0.3, condition: Condition = is_running) -> Obj | None:
    return never(server, POD, condition, during)  # type: ignore[arg-type]


def test_never_violated() -> None:
    """A state that must never be is noticed even if it lasts no time at all."""
    server = Server("stall")

    server.put(phase="Pending")
    later(lambda: flash(server))
    with pytest.raises(NeverViolated, match="was running, which it must not be"):
        refrain(server, 30)


def test_never_looks_a_last_time() -> None:
    """A state that a stalled stream kept back is found by the last look."""
    server = Server("stall")
    server.put(phase="Pending")
    server.unseen = lambda: run(server)
    with pytest.raises(NeverViolated):
        refrain(server, 0.15)


def test_never_sees_what_was_while_the_server_was_busy() -> None:
    """A refusal for now does not make it skip the history meanwhile."""
    server = Server("stall", "503")

    server.put(phase="Pending")
    later(lambda: flash(server))
    with pytest.raises(NeverViolated):
        refrain(server, 30)


def test_never_holds_for_the_whole_time() -> None:
    """Where nothing happens, the whole time is waited and the object given back."""
    server = Server("quiet", "one", "stall")
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
    server = Server(*faults)
    server.put(phase="Pending")
    later(lambda: run(server, node="node-2"))
    begun = time.monotonic()
    refrain(server, 20, is_running_on(["node-1"], "that was lost"))
    assert time.monotonic() - begun < 15


@pytest.mark.parametrize("fault", ["410", "broken"])
def test_never_does_not_claim_what_it_has_not_seen(fault: str) -> None:
    """Where part of the history is lost, the answer is unknown and not yes."""
    server = Server(*[fault] * 1000)
    server.put(phase="Pending")
    if fault == "broken":
        server.unseen = lambda: server.list_faults.extend([urllib3.exceptions.ProtocolError("reset")] * 500)
    with pytest.raises(NeverUnknown, match="may have been running"):
        refrain(server)


def test_never_is_not_said_where_no_stream_could_be_had() -> None:
    """A state between two looks is not ruled out by them: the object has changed, and nobody saw how."""
    server = Server(*["broken"] * 1000)

    server.put(phase="Pending")
    server.unseen = lambda: flash(server)
    with pytest.raises(NeverUnknown, match="may have been running"):
        refrain(server)


def test_never_is_said_where_a_stream_broke_and_nothing_had_changed() -> None:
    """The last look shows the version that was seen before: there is nothing in between."""
    server = Server(*["broken"] * 1000)
    server.put(phase="Pending")
    refrain(server)


def test_never_is_said_where_only_the_last_look_came_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes after its time, and before a server that stood still gives the last look, is not looked for."""
    monkeypatch.setattr(looking, "_LAST", 30)
    server = Server("broken", "stall", "stall")

    def late() -> None:
        unscheduled(server)
        server.list_faults.extend([urllib3.exceptions.ProtocolError("reset")] * 3)

    server.put(phase="Pending")
    server.unseen = lambda: None if server.watches < 3 else late()
    refrain(server)


def test_never_holds_for_its_time_from_the_first_look_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that stood still at first leaves no less to see."""
    monkeypatch.setattr(looking, "_LAST", 30)
    server = Server()
    server.put(phase="Pending")
    server.list_faults.extend([urllib3.exceptions.ProtocolError("reset")] * 20)
    begun = time.monotonic()
    refrain(server, 0.1)
    assert time.monotonic() - begun >= 0.2


def test_never_on_an_object_that_vanishes() -> None:
    """An object that goes away proves nothing about what it would have done."""
    server = Server()
    server.put(phase="Pending")
    later(server.drop)
    with pytest.raises(WaitTerminal, match="vanished while it was to be seen never to be running"):
        refrain(server, 30)
