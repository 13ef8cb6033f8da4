"""Builds in several processes at once, interrupted, and killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import psutil

from pvaffinity.local.binaries import COMPONENTS, ensure, items
from pvaffinity.local.bincache import Cache
from pvaffinity.versions import load_versions
from selftests.awaiting import ended, eventually
from selftests.faked_go import FakeGo

RELEASE = load_versions().newest


def start() -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from pvaffinity.cli import main; main()", "binaries", "fetch"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_two_at_once_build_once(fake_go: FakeGo) -> None:
    """A second process waits for the first, says for whom, and takes its results."""
    (fake_go.root / "hold").touch()
    first = start()
    eventually(lambda: bool(fake_go.builds()))
    lines: list[str] = []
    second = threading.Thread(target=lambda: ensure(RELEASE, progress=lines.append, every=0.1))
    second.start()
    eventually(lambda: any(f"waiting for process {first.pid}" in line for line in lines))
    (fake_go.root / "hold").unlink()

    output = first.communicate(timeout=120)[0]
    second.join(120)

    assert first.returncode == 0, output
    assert sorted(fake_go.builds()) == sorted([*COMPONENTS[:-1], "v3"])


def test_ctrl_c_ends_the_build_and_cleans_up(fake_go: FakeGo) -> None:
    """After Ctrl-C no child of the build runs, nothing is left in the work directory, and the exit code is 130."""
    (fake_go.root / "hold").touch()
    process = start()
    eventually((fake_go.root / "child").exists)
    child = int((fake_go.root / "child").read_text())

    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=120)[0]

    assert process.returncode == 130, output
    assert "Traceback" not in output
    eventually(lambda: ended(child))
    assert not list((Cache().root / ".work").iterdir())


def test_a_killed_builder_leaves_nothing_that_counts(fake_go: FakeGo) -> None:
    """After kill -9 in mid-build go ends by itself, and the next run builds, and removes what was left."""
    (fake_go.root / "hold").touch()
    process = start()
    eventually((fake_go.root / "child").exists)
    go = psutil.Process(process.pid).children()[0]
    process.kill()
    process.communicate(timeout=120)

    eventually(lambda: not go.is_running() or ended(go.pid))
    assert list((Cache().root / ".work").iterdir())
    assert Cache().find(items(RELEASE)[0]).state == "missing"
    (fake_go.root / "hold").unlink()
    assert ensure(RELEASE).kubectl.exists()
    assert not list((Cache().root / ".work").iterdir())
