"""A cluster's supervisor leaves nothing behind, whoever dies and however: fake daemons in real namespaces."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import time

import pytest

from pvaffinity.leftovers import processes_of
from pvaffinity.local import control
from pvaffinity.local.preflight import try_namespaces
from selftests.supervised import FOREVER, STUBBORN, Supervised

pytestmark = pytest.mark.skipif(bool(try_namespaces()[0]), reason="this machine does not allow user namespaces")


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
        deadline = time.monotonic() + 60
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
