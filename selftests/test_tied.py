"""A program that is tied to a process ends with it, and takes along what it has started."""

import os
import signal
import subprocess
import sys
import time

import pytest

from pvaffinity.local.tied import tied
from selftests.awaiting import ended, eventually

OWNER = """
import subprocess, sys, time
from pvaffinity.local.tied import tied
subprocess.Popen(tied(sys.executable, "-c", sys.argv[1], sys.argv[2]), process_group=0)
time.sleep(300)
"""
PROGRAM = """
import os, pathlib, subprocess, sys, time
child = subprocess.Popen(["sleep", "300"])
out = pathlib.Path(sys.argv[1])
out.with_suffix(".part").write_text(f"{os.getpid()} {child.pid}")
out.with_suffix(".part").rename(out)
try:
    time.sleep(300)
except KeyboardInterrupt:
    out.with_name("cleared").touch()
"""


def _gone(pids, seconds=60):
    deadline = time.monotonic() + seconds
    while left := [pid for pid in pids if not ended(pid)]:
        if time.monotonic() > deadline:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            return False
        time.sleep(0.02)
    return True


def test_a_program_and_its_children_end_with_their_killed_owner(tmp_path):
    """After kill -9 the program is interrupted, clears away, and its child, which knows of nobody's death, ends too."""
    owner = subprocess.Popen([sys.executable, "-c", OWNER, PROGRAM, str(tmp_path / "pids")])
    eventually((tmp_path / "pids").exists)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    owner.kill()
    owner.wait()
    assert _gone(pids)
    assert (tmp_path / "cleared").exists()


@pytest.mark.parametrize(("code", "seen"), [(0, 0), (3, 1), (-9, 1)])
def test_its_exit_code_says_whether_it_went_well(code, seen):
    """0 is success; failure and death by signal are 1."""
    script = "import os, sys; code = int(sys.argv[1]); os.kill(os.getpid(), -code) if code < 0 else sys.exit(code)"
    command = tied(sys.executable, "-c", script, str(code))
    assert subprocess.run(command, process_group=0, check=False, timeout=120).returncode == seen
