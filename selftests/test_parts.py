"""Components of a running cluster are stopped and started on order, each answered when it is done: fake daemons."""

from __future__ import annotations

import dataclasses
import json
import sys

import pytest

from pvaffinity.local import control
from pvaffinity.local.preflight import try_namespaces
from pvaffinity.local.readiness import Readiness
from selftests.supervised import FOREVER

pytestmark = pytest.mark.skipif(bool(try_namespaces()[0]), reason="this machine does not allow user namespaces")

FLAGGED = (
    "import signal, sys, time\n"
    "if '--bad' in sys.argv: raise SystemExit('Error: unknown flag: --bad')\n"
    "if '--mute' not in sys.argv: print('serving', sys.argv[1:], flush=True)\n"
    "time.sleep(600)"
)


def test_a_component_stopped_on_order_is_no_crash(supervised):
    """The cluster stays ready without it, stopping it again is no error, and its start is a new process."""
    cluster = supervised({"a": FLAGGED, "b": FOREVER})
    cluster.until("ready")
    before = control.ask(cluster.directory, "status")["daemons"]
    for _ in range(2):
        assert control.ask(cluster.directory, "component-stop", component="a")["ok"]
    status = control.ask(cluster.directory, "status")
    assert status["state"] == "ready"
    assert (status["daemons"]["a"]["running"], status["daemons"]["b"]) == (False, before["b"])
    assert control.ask(cluster.directory, "component-start", component="a")["ok"]
    after = control.ask(cluster.directory, "status")["daemons"]["a"]
    assert after["running"]
    assert after["pid"] != before["a"]["pid"]


def test_a_component_runs_with_other_flags_until_it_is_started_without(supervised):
    """Flags hold for one run; starting what runs with just these leaves it alone."""
    cluster = supervised({"a": FLAGGED})
    cluster.until("ready")
    configured = json.loads((cluster.directory / "spec.json").read_text())["daemons"][0]["argv"]
    pids, seen = [], []
    for argv in ([*configured, "--new"], [*configured, "--new"], []):
        assert control.ask(cluster.directory, "component-start", component="a", argv=argv)["ok"]
        pids.append(control.ask(cluster.directory, "status")["daemons"]["a"]["pid"])
        seen.append((cluster.directory / "logs" / "a.log").read_text().splitlines()[-1])
    assert seen == ["serving ['--new']", "serving ['--new']", "serving []"]
    assert pids[0] == pids[1] != pids[2]


def test_a_component_that_exits_at_once_is_told_with_its_reason_and_can_be_restored(supervised):
    """The answer has the reason and the end of the log; started as configured, it runs again."""
    cluster = supervised({"a": FLAGGED})
    cluster.until("ready")
    argv = json.loads((cluster.directory / "spec.json").read_text())["daemons"][0]["argv"]
    answer = control.ask(cluster.directory, "component-start", component="a", argv=[*argv, "--bad"])
    assert answer["error"] == "a exited (1): unknown flag: --bad"
    assert "Error: unknown flag" in answer["log"]
    assert control.ask(cluster.directory, "status")["state"] == "ready"
    assert control.ask(cluster.directory, "component-start", component="a")["ok"]
    assert control.ask(cluster.directory, "status")["daemons"]["a"]["running"]


def test_the_start_of_a_component_is_answered_when_it_is_ready_and_not_before(supervised):
    """Meanwhile the supervisor answers others; a second order for the same component is refused, not mixed up."""
    cluster = supervised({"a": FLAGGED})
    cluster.until("ready")
    argv = json.loads((cluster.directory / "spec.json").read_text())["daemons"][0]["argv"]
    with pytest.raises(control.SlowError, match=r"component-start was not answered within 0\.5 s"):
        control.ask(cluster.directory, "component-start", component="a", argv=[*argv, "--mute"], timeout=0.5)
    assert control.ask(cluster.directory, "status")["daemons"]["a"]["running"]
    again = control.ask(cluster.directory, "component-start", component="a")
    assert again["error"] == "a is just being started"


def test_a_component_has_as_long_as_the_order_gives_it(supervised):
    """One budget from who asks to who waits: it goes before the daemon's own, and is the one that is told."""
    cluster = supervised({"a": FLAGGED})
    cluster.until("ready")
    argv = json.loads((cluster.directory / "spec.json").read_text())["daemons"][0]["argv"]
    mute = [*argv, "--mute"]
    answer = control.ask(cluster.directory, "component-start", component="a", argv=mute, seconds=0.5)
    assert answer["error"] == "a runs but was not ready within 0.5 s"
    assert control.ask(cluster.directory, "component-start", component="a")["ok"]


def test_what_is_no_component_is_refused_by_name(supervised):
    """An order for an unknown component is answered, and nothing is stopped."""
    cluster = supervised({"a": FOREVER})
    cluster.until("ready")
    assert control.ask(cluster.directory, "component-stop", component="ghost")["error"] == "no component 'ghost'"


SERVES = (
    "import socket, sys, time\n"
    "if '--bad' in sys.argv: raise SystemExit('Error: unknown flag: --bad')\n"
    "s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
    "s.bind(('127.0.0.1', 7000)); s.listen(64)\n"
    "print('listens', sys.argv[1:], flush=True)\n"
    "while True: s.accept()[0].close()"
)


def test_a_component_is_never_there_twice(supervised):
    """A server that is replaced has let go of its port before the next one starts: two would mix up their calls."""
    argv = [sys.executable, "-c", SERVES]
    ready = dataclasses.asdict(Readiness("tcp", "127.0.0.1:7000"))
    cluster = supervised({}, daemons=[{"name": "a", "argv": argv, "ready": ready, "seconds": 60.0}], stop_order=["a"])
    cluster.until("ready")
    first = control.ask(cluster.directory, "status")["daemons"]["a"]["pid"]
    for flag in ("--new", "--newer"):
        assert control.ask(cluster.directory, "component-start", component="a", argv=[*argv, flag])["ok"]
    answer = control.ask(cluster.directory, "component-start", component="a", argv=[*argv, "--bad"])
    assert answer["error"] == "a exited (1): unknown flag: --bad"
    assert control.ask(cluster.directory, "component-start", component="a")["ok"]
    assert control.ask(cluster.directory, "status")["daemons"]["a"]["pid"] != first
    log = (cluster.directory / "logs" / "a.log").read_text()
    assert [line for line in log.splitlines() if "listens" in line] == [
        "listens []", "listens ['--new']", "listens ['--newer']", "listens []"
    ]  # fmt: skip
    assert "Address already in use" not in log
