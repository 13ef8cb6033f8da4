"""One daemon's start ends ready, exited or too late, each told apart and with the reason."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from pvaffinity.local.daemon import Daemon, DaemonSpec, StartError, reason_of, tail
from pvaffinity.local.readiness import Readiness


def _daemon(tmp_path: Path, script: str, ready: Readiness, seconds: float = 60.0) -> Daemon:
    argv = (sys.executable, "-u", "-c", script)
    return Daemon(DaemonSpec("fake", argv, env=dict(os.environ), ready=ready, seconds=seconds), tmp_path)


def _await_ready(daemon: Daemon) -> None:
    while not daemon.check():
        time.sleep(0.01)


def _outcome(daemon: Daemon) -> None:
    daemon.start()
    try:
        _await_ready(daemon)
    except StartError:
        daemon.stop(signal.SIGKILL)
        raise


def test_a_daemon_is_ready_when_its_log_says_so(tmp_path):
    """The awaited line in the log makes a daemon ready, and stopping it ends it."""
    daemon = _daemon(tmp_path, "import time; print('serving 3'); time.sleep(60)", Readiness("line", "serving"))
    _outcome(daemon)
    assert daemon.running
    daemon.stop()
    assert not daemon.running


def test_a_daemon_is_ready_when_its_port_accepts(tmp_path):
    """A listening port makes a daemon ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = f"import socket, time; s = socket.create_server(('127.0.0.1', {port})); time.sleep(60)"
    daemon = _daemon(tmp_path, script, Readiness("tcp", f"127.0.0.1:{port}"))
    _outcome(daemon)
    daemon.stop(signal.SIGKILL)


def test_a_daemon_that_exits_is_told_with_its_code_reason_and_log(tmp_path):
    """A daemon that exits is never called late: code, the line that says why, and the log's end are told."""
    script = "import sys; print('starting'); sys.exit('Error: bad flag')"
    with pytest.raises(StartError) as caught:
        _outcome(_daemon(tmp_path, script, Readiness("line", "never")))
    assert caught.value.what == "fake exited (1): bad flag"
    assert "starting" in caught.value.log


def test_a_daemon_killed_by_a_signal_is_told_by_its_name(tmp_path):
    """Death by signal is told as such."""
    script = "import os; os.kill(os.getpid(), 9)"
    with pytest.raises(StartError, match="fake was ended by SIGKILL"):
        _outcome(_daemon(tmp_path, script, Readiness("line", "never")))


def test_a_daemon_that_runs_but_is_not_ready_is_too_late(tmp_path):
    """A daemon that runs on without getting ready is told as late, with its budget and its log."""
    script = "import time; print('thinking'); time.sleep(60)"
    daemon = _daemon(tmp_path, script, Readiness("line", "never"), seconds=0.5)
    daemon.start()
    while "thinking" not in daemon.new_log():
        time.sleep(0.01)
    with pytest.raises(StartError) as caught:
        _await_ready(daemon)
    daemon.stop(signal.SIGKILL)
    assert caught.value.what == "fake runs but was not ready within 0.5 s"
    assert caught.value.log == "thinking"


def test_a_ready_daemon_that_exits_later_is_noticed(tmp_path):
    """Ready once is not ready for ever: a later exit raises."""
    daemon = _daemon(tmp_path, "print('serving'); input()", Readiness("line", "serving"))
    daemon.start()
    assert daemon.process is not None
    daemon.process.wait()
    with pytest.raises(StartError, match="exited"):
        daemon.check()


def test_a_program_that_cannot_be_executed_names_the_file(tmp_path):
    """A file that is no program is told with its path and the system's reason."""
    program = tmp_path / "kubelet"
    program.write_bytes(b"\x7fnot a program")
    program.chmod(0o755)
    with pytest.raises(StartError, match=rf"fake cannot be started: {program}: Exec format error"):
        Daemon(DaemonSpec("fake", (str(program),)), tmp_path).start()


def test_only_the_log_of_the_last_start_counts(tmp_path):
    """After a restart the line of the first start does not make the second one ready."""
    (tmp_path / "fake.log").write_text("serving\n")
    daemon = _daemon(tmp_path, "import time; time.sleep(60)", Readiness("line", "serving"))
    daemon.start()
    assert not daemon.check()
    daemon.stop(signal.SIGKILL)


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (
            'I1130 1 x.go:1] "hi"\nE1130 14:03:30.6 20 run.go:72] "command failed" err="unrecognized feature gate: X"',
            "unrecognized feature gate: X",
        ),
        ("Error: unknown flag: --nosuch\n", "unknown flag: --nosuch"),
        ('{"level":"fatal","ts":"t","msg":"discovery failed","error":"no space"}', "discovery failed: no space"),
        ("E1130 14:03:30.6 2 server.go:9] listen tcp: address in use\nI1130 bye", "listen tcp: address in use"),
        ("panic: runtime error: out of range\n\ngoroutine 1 [running]:", "panic: runtime error: out of range"),
        ("something\nlast words\n", "last words"),
        ("", ""),
    ],
)  # fmt: skip
def test_the_reason_is_found_in_a_log(log, reason):
    """The one telling line of klog, cobra, etcd, Go panics and anything else is found."""
    assert reason_of(log) == reason


def test_the_tail_of_a_log_is_short(tmp_path):
    """However long a log is, its tail has twelve lines of bounded width."""
    log = tmp_path / "long.log"
    log.write_text("".join(f"{n} {'x' * 1000}\n" for n in range(500)))
    lines = tail(log).splitlines()
    assert len(lines) == 12
    assert lines[-1].startswith("499 ")
    assert max(map(len, lines)) == 400
    assert tail(tmp_path / "none.log") == ""
