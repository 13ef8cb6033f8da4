"""What is going on is seen while it goes on, in a session of any kind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from selftests.awaiting import eventually

ROOT = Path(__file__).resolve().parents[1]

PLUGIN = """
import pathlib
from fixtures.shown import Shown

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.shown = Shown(config, pathlib.Path("progress.log"))

def pytest_unconfigure(config):
    if hasattr(config, "shown"):
        config.shown.stop()
"""

TESTS = """
import pathlib, pytest
from selftests.awaiting import eventually

def test_before(): pass

@pytest.fixture
def cluster():
    with open("progress.log", "a") as log:
        log.write("building, 2 of 3\\n")
    print("what a fixture prints")
    eventually(pathlib.Path("seen").exists)

def test_after(cluster): pass
"""


@pytest.mark.parametrize("options", [[], ["-n", "1"], ["-s"]], ids=["plain", "xdist", "no capture"])
def test_progress_is_shown_while_a_cluster_is_made(tmp_path: Path, options: list[str]) -> None:
    """A build of minutes says how far it is while a test waits for it, in a line of its own, wherever tests run."""
    (tmp_path / "plugin.py").write_text(PLUGIN)
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "plugin", *options, "test_it.py"]
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}:{tmp_path}", "PATH": ""}
    with (tmp_path / "output").open("w") as output:
        session = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        eventually(lambda: "\n  building, 2 of 3\n" in (tmp_path / "output").read_text())
    finally:
        (tmp_path / "seen").touch()

    assert session.wait(60) == 0
    assert "what a fixture prints" not in (tmp_path / "output").read_text() or options == ["-s"]
