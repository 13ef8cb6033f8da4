"""Waiting goes on where a server breaks off, forgets, stands still or is busy, and says what it could not see."""

from __future__ import annotations

import time

import pytest
import urllib3

from pvaffinity import looking
from pvaffinity.conditions import is_running
from pvaffinity.errors import ApiError
from pvaffinity.judging import why_not_judged
from pvaffinity.waiting import NeverUnknown, WaitUnknown, never
from selftests.watched import POD, Server, later, run, wait

pytestmark = pytest.mark.usefixtures("quick_waits")


def test_history_that_expired() -> None:
    """410 Expired leads to a new list."""
    server = Server("410")
    server.put(phase="Pending")
    server.unseen = lambda: run(server)
    wait(server)
    assert server.lists == 2


@pytest.mark.parametrize("fault", ["quiet", "broken", "503"])
def test_streams_that_end(fault: str) -> None:
    """A stream that ends quietly, breaks or is refused for now is no news: the object is looked at again."""
    server = Server(fault, fault, fault)
    server.put(phase="Pending")
    later(lambda: run(server), after=0.1)
    wait(server)
    assert server.lists >= 2


@pytest.mark.parametrize("fault", [urllib3.exceptions.ProtocolError("reset"), ApiError(500, "", "etcdserver: timeout")])
@pytest.mark.parametrize("kind", [WaitUnknown, NeverUnknown])
def test_a_server_that_is_known_to_have_ended_is_not_waited_for(fault: Exception, kind: type[Exception]) -> None:
    """Where no answer came and its provider says that none will, the wait ends at once, unjudged, for that reason."""
    server = Server()
    server.list_faults.extend([fault] * 1000)
    server.silence.ended = lambda: "not running: kube-apiserver"
    began = time.monotonic()
    with pytest.raises(kind, match=r"\APod ns/reader .*: not running: kube-apiserver\n") as caught:
        wait(server) if kind is WaitUnknown else never(server, POD, is_running, 30.0)  # type: ignore[arg-type]
    assert time.monotonic() - began < 5
    assert why_not_judged(caught.value)


def test_a_server_that_is_down_is_not_hammered() -> None:
    """Streams that end at once are opened again after a pause; what was not to be seen is not said to be absent."""
    server = Server(*["broken"] * 1000)
    server.put(phase="Pending")
    server.list_faults.extend([urllib3.exceptions.ProtocolError("connection reset")] * 500)
    with pytest.raises(WaitUnknown, match=r"(?s)nor looked at at its end.*trouble     ProtocolError: connection reset"):
        wait(server, budget=0.3)
    assert server.lists < 40


def test_stalled_stream() -> None:
    """A stream that says nothing more costs one slice, not the budget."""
    server = Server("stall")
    server.put(phase="Pending")
    later(lambda: run(server), after=0.02)
    begun = time.monotonic()
    wait(server, budget=60)
    assert 0.15 < time.monotonic() - begun < 30


def test_change_in_the_last_moment() -> None:
    """When the budget is spent, the object is looked at once more."""
    server = Server("stall")
    server.put(phase="Pending")
    server.unseen = lambda: run(server)
    wait(server, budget=0.15)


@pytest.mark.parametrize("code", [429, 500, 0])
def test_a_server_that_stands_still_when_the_budget_ends(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """The last look is made again while it gets no answer, with pauses: it may be the decisive one."""
    monkeypatch.setattr(looking, "_LAST", 30)
    monkeypatch.setattr(looking, "_PAUSE", 0.05)
    fault = ApiError(code, "", "later") if code else urllib3.exceptions.ReadTimeoutError(None, "", "")  # type: ignore[arg-type]
    server = Server("stall")
    server.put(phase="Pending")

    def stand_still() -> None:
        run(server)
        server.list_faults.extend([fault] * 4)

    server.unseen = stand_still
    begun = time.monotonic()
    wait(server, budget=0.15)
    assert time.monotonic() - begun >= 0.15 + 4 * 0.05
    assert server.lists == 6


def test_refusal_is_raised() -> None:
    """Who may not look is told so at once."""
    server = Server("403")
    with pytest.raises(ApiError, match="403 Forbidden"):
        wait(server)
