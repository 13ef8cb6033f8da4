"""A cluster's supervisor leaves nothing behind, whoever dies and however: fake daemons in real namespaces."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pvaffinity.leftovers import end_processes, processes_of
from pvaffinity.local import control
from pvaffinity.local.daemon import DaemonSpec
from pvaffinity.local.owner import Owner
from pvaffinity.local.plan import environment
from pvaffinity.local.preflight import try_namespaces
from pvaffinity.local.readiness import Readiness

pytestmark = pytest.mark.skipif(bool(try_namespaces()[0]), reason="this machine does not allow user namespaces")

FOREVER = "import time; print('serving', flush=True); time.sleep(600)"
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('serving', flush=True); time.sleep(600)"


class Supervised:
    """One supervisor over fake daemons, owned by a process that can be killed."""

    def __init__(self, directory: Path, scripts: dict[str, str], prefix: tuple[str, ...] = (), **spec: Any) -> None:
        self.directory = directory
        self.owner = subprocess.Popen(["sleep", "600"])
        (directory / "logs").mkdir(parents=True)
        env = environment(directory)
        daemons = [
            DaemonSpec(name, (sys.executable, "-c", script), (), "", env, Readiness("line", "serving"), 20.0)
            for name, script in scripts.items()
        ]
        for daemon in spec.get("daemons", ()):
            daemon["env"] = env
        wanted = {
            "owner": dataclasses.asdict(Owner.of(self.owner.pid)),
            "api": {"host": "127.0.0.1", "port": 6443},
            "daemons": [dataclasses.asdict(daemon) for daemon in daemons],
            "nodes": [],
            "stop_order": list(scripts),
        } | spec
        (directory / "spec.json").write_text(json.dumps(wanted))
        with (directory / "logs" / "supervisor.log").open("w") as log:
            self.launcher = subprocess.Popen(
                [*prefix, sys.executable, "-m", "pvaffinity.local.supervisor", str(directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=env,
                start_new_session=True,
            )
        assert self.launcher.wait(20) == 0

    def says(self) -> dict[str, Any]:
        """What the supervisor says next; {} at its end."""
        assert self.launcher.stdout is not None
        return json.loads(self.launcher.stdout.readline() or "{}")

    def until(self, event: str) -> dict[str, Any]:
        """Listen until it says this."""
        while (said := self.says()).get("event") != event:
            assert said, f"the supervisor ended before it said {event}"
        return said

    def gone(self, *, directory: bool = True, seconds: float = 10.0) -> bool:
        """Whether every process (and the directory) is gone, at the latest after some seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not processes_of(self.directory) and not (directory and self.directory.exists()):
                return True
            time.sleep(0.05)
        return False

    def supervisors(self) -> list[psutil.Process]:
        """Outer part, inner part, helpers."""
        found = [psutil.Process(pid) for pid in processes_of(self.directory)]
        ours = [p for p in found if "pvaffinity.local.supervisor" in p.cmdline()]
        return sorted(ours, key=lambda p: p.create_time())

    def close(self) -> None:
        """End whatever is left."""
        self.owner.kill()
        self.owner.wait()
        end_processes(self.directory)
        for stream in (self.launcher.stdin, self.launcher.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        shutil.rmtree(self.directory, ignore_errors=True)


@pytest.fixture
def supervised() -> Iterator[Any]:
    made: list[Supervised] = []
    root = Path(tempfile.mkdtemp(prefix="pvs-"))  # short: sockets lie in it

    def make(scripts: dict[str, str], **spec: Any) -> Supervised:
        made.append(Supervised(root / str(len(made)), scripts, **spec))
        return made[-1]

    yield make
    for each in made:
        each.close()
    shutil.rmtree(root)


def test_killing_the_owner_ends_everything_and_removes_the_directory(supervised):
    """SIGKILL of the owner is noticed: no process and no directory is left, however stubborn a daemon is."""
    cluster = supervised({"a": FOREVER, "b": STUBBORN})
    cluster.until("ready")
    assert len(processes_of(cluster.directory)) >= 4
    cluster.owner.kill()
    cluster.owner.wait()
    assert cluster.gone()


def test_an_order_to_stop_is_answered_when_everything_is_gone(supervised):
    """The answer to ``stop`` comes after the last process has ended and the directory is removed."""
    cluster = supervised({"a": STUBBORN})
    cluster.until("ready")
    assert control.ask(cluster.directory, "stop") == {"ok": True}
    assert not cluster.directory.exists()
    assert cluster.gone(seconds=1)
    with pytest.raises(control.NoSupervisorError):
        control.ask(cluster.directory, "status")


@pytest.mark.parametrize("which", ["outer", "inner"])
def test_killing_a_part_of_the_supervisor_ends_everything_inside(supervised, which):
    """No daemon outlives the supervisor, whichever of its parts is killed."""
    cluster = supervised({"a": STUBBORN, "b": FOREVER})
    cluster.until("ready")
    outer, inner = cluster.supervisors()[:2]
    if which == "outer":
        inner.suspend()  # so that only the kernel can end it
    (outer if which == "outer" else inner).kill()
    if which == "inner":
        deadline = time.monotonic() + 10
        while len(processes_of(cluster.directory)) > 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert processes_of(cluster.directory) == (outer.pid,)  # it waits for the owner, and keeps the logs
        assert control.ask(cluster.directory, "status")["state"] == "dead"
        cluster.owner.kill()
        cluster.owner.wait()
    assert cluster.gone(directory=which == "inner")


def test_a_daemon_that_exits_during_the_start_undoes_the_start(supervised):
    """Half a start is undone: the failure is told with its reason, and nothing is left."""
    cluster = supervised({"good": FOREVER, "bad": "raise SystemExit('Error: no such gate')"})
    said = cluster.until("failed")
    assert said["what"] == "bad exited (1): no such gate"
    assert said["daemon"] == "bad"
    assert cluster.gone()


def test_a_creator_that_goes_away_during_the_start_takes_the_cluster_with_it(supervised):
    """A start nobody waits for any more is undone, though the owner lives."""
    cluster = supervised({"slow": "import time; time.sleep(600)"})
    cluster.launcher.stdin.close()
    cluster.launcher.stdout.close()
    assert cluster.gone()
    assert cluster.owner.poll() is None


def test_needs_hold_a_daemon_back_until_they_are_met(supervised):
    """A daemon starts only when what it needs is ready or has been brought about by the creator."""
    cluster = supervised({"a": FOREVER})
    spec = json.loads((cluster.directory / "spec.json").read_text())
    spec["daemons"][0]["needs"] = ["certificates"]
    held = supervised({"a": FOREVER}, daemons=spec["daemons"])
    assert held.says()["event"] == "port"
    assert control.ask(held.directory, "status")["daemons"]["a"]["pid"] is None
    held.launcher.stdin.write(b"certificates\n")
    held.launcher.stdin.flush()
    assert held.until("ready")


MASKED = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs t /proc/tty; exec "$@"', "sh")


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare of util-linux")
def test_where_proc_is_masked_a_cluster_runs_without_a_process_namespace(supervised):
    """As in a container: /proc cannot be mounted anew; conditions told before that shows are not lost; all ends."""
    cluster = supervised({"a": FOREVER})
    daemons = json.loads((cluster.directory / "spec.json").read_text())["daemons"]
    held = supervised({"a": FOREVER}, prefix=MASKED, daemons=[daemons[0] | {"needs": ["certificates"]}])
    held.launcher.stdin.write(b"certificates\n")
    held.launcher.stdin.flush()
    held.until("ready")
    seen = control.ask(held.directory, "status")["daemons"]["a"]["pid"]
    assert seen in processes_of(held.directory)  # a number of the host's: no process namespace
    held.owner.kill()
    held.owner.wait()
    assert held.gone()


def test_a_disowned_cluster_outlives_its_owner(supervised):
    """After ``disown`` only an order ends the cluster."""
    cluster = supervised({"a": FOREVER})
    cluster.until("ready")
    assert control.ask(cluster.directory, "disown") == {"ok": True}
    cluster.owner.kill()
    cluster.owner.wait()
    assert control.ask(cluster.directory, "status")["state"] == "ready"
    assert control.ask(cluster.directory, "stop") == {"ok": True}
    assert cluster.gone()


def test_unknown_orders_and_broken_lines_are_answered(supervised):
    """Whatever comes in on the control socket, the supervisor answers and lives on."""
    cluster = supervised({"a": FOREVER})
    cluster.until("ready")
    assert "error" in control.ask(cluster.directory, "no-such-order")
    with socket.socket(socket.AF_UNIX) as client, client.makefile("rb") as answers:
        client.connect(str(cluster.directory / "control.sock"))
        for line in (b"\xff\n", b'"do"\n', b"[]\n", b'{"do": 1}\n'):
            client.sendall(line)
            assert b"error" in answers.readline()
    assert control.ask(cluster.directory, "kubelet-stop", node="ghost")["error"] == "no node 'ghost'"
    assert control.ask(cluster.directory, "status")["daemons"]["a"]["running"]


def test_a_port_that_cannot_be_bound_is_one_clean_failure(supervised):
    """If not even the control socket can be made, the failure says where, and nothing is left."""
    cluster = supervised({"a": FOREVER})
    cluster.until("ready")
    deep = cluster.directory.parent / ("d" * 60) / ("e" * 60)
    far = Supervised(deep, {"a": FOREVER})
    try:
        assert str(deep) in far.says()["what"]
        assert far.gone()
    finally:
        far.close()


def test_the_sysctls_of_the_host_are_out_of_reach(supervised):
    """Inside a cluster /proc/sys is read-only, for root as well."""
    script = (
        "import sys\n"
        "try: open('/proc/sys/vm/overcommit_memory', 'r+')\n"
        "except OSError as error: print('serving', error.errno, flush=True)\n"
        "import time; time.sleep(600)"
    )
    cluster = supervised({"a": script})
    cluster.until("ready")
    errno = (cluster.directory / "logs" / "a.log").read_text().split()[-1]
    assert int(errno) in (13, 30)


def test_two_clusters_do_not_disturb_each_other(supervised):
    """The end of one owner ends its cluster alone."""
    one, two = supervised({"a": FOREVER}), supervised({"a": FOREVER})
    one.until("ready")
    two.until("ready")
    one.owner.kill()
    one.owner.wait()
    assert one.gone()
    assert control.ask(two.directory, "status")["state"] == "ready"


def test_sigterm_of_the_outer_part_is_a_clean_end(supervised):
    """SIGTERM to the supervisor stops the cluster as an order does."""
    cluster = supervised({"a": FOREVER})
    cluster.until("ready")
    os.kill(cluster.supervisors()[0].pid, signal.SIGTERM)
    assert cluster.gone()


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
    with pytest.raises(control.NoSupervisorError, match="timed out"):
        control.ask(cluster.directory, "component-start", component="a", argv=[*argv, "--mute"], timeout=0.5)
    assert control.ask(cluster.directory, "status")["daemons"]["a"]["running"]
    again = control.ask(cluster.directory, "component-start", component="a")
    assert again["error"] == "a is just being started"


def test_what_is_no_component_is_refused_by_name(supervised):
    """An order for an unknown component is answered, and nothing is stopped."""
    cluster = supervised({"a": FOREVER})
    cluster.until("ready")
    assert control.ask(cluster.directory, "component-stop", component="ghost")["error"] == "no component 'ghost'"


SHARED = (
    "import socket, sys, time\n"
    "if '--bad' in sys.argv: raise SystemExit('Error: unknown flag: --bad')\n"
    "time.sleep(0.5)\n"
    "s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n"
    "s.bind(('127.0.0.1', 7000)); s.listen(64)\n"
    "print('listens', sys.argv[1:], flush=True)\n"
    "while True: s.accept()[0].close()"
)
CLIENT = (
    "import socket, time\n"
    "print('serving', flush=True)\n"
    "while True:\n"
    "    time.sleep(0.002)\n"
    "    try: socket.create_connection(('127.0.0.1', 7000), 1).close()\n"
    "    except ConnectionRefusedError: print('refused', flush=True)"
)


def test_a_component_that_shares_its_port_is_replaced_and_refuses_no_connection(supervised):
    """Its successor listens before it ends, so that nobody is refused; one that exits leaves it running."""
    argv = [sys.executable, "-c", SHARED]
    ready = dataclasses.asdict(Readiness("tcp", "127.0.0.1:7000"))
    server = {"name": "a", "argv": argv, "ready": ready, "seconds": 20.0, "overlap": "listens"}
    client = {"name": "b", "argv": [sys.executable, "-c", CLIENT], "needs": ["a"]}
    cluster = supervised({}, daemons=[server, client], stop_order=["a", "b"])
    cluster.until("ready")
    first = control.ask(cluster.directory, "status")["daemons"]["a"]["pid"]
    answer = control.ask(cluster.directory, "component-start", component="a", argv=[*argv, "--bad"])
    assert answer["error"] == "a exited (1): unknown flag: --bad"
    assert control.ask(cluster.directory, "status")["daemons"]["a"] == {"running": True, "pid": first}
    assert control.ask(cluster.directory, "component-start", component="a", argv=[*argv, "--new"])["ok"]
    daemons = control.ask(cluster.directory, "status")["daemons"]
    assert set(daemons) == {"a", "b"}
    assert daemons["a"]["running"]
    assert daemons["a"]["pid"] != first
    assert "listens ['--new']" in (cluster.directory / "logs" / "a.log").read_text()
    assert "refused" not in (cluster.directory / "logs" / "b.log").read_text()
    assert control.ask(cluster.directory, "stop") == {"ok": True}
    assert cluster.gone(seconds=1)
