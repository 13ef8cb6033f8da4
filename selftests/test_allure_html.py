"""Allure's report is a convenience: made where a generator is there, quickly given up where none is."""

from __future__ import annotations

import secrets
import time
from pathlib import Path

import psutil
import pytest

from pvaffinity.report import allure_html

WRITES = """
while [ $# -gt 0 ]; do case $1 in --output|-o) out=$2;; esac; shift; done
mkdir -p "$out"; echo report > "$out/index.html"
"""


@pytest.fixture
def results(tmp_path):
    """A directory with one Allure result."""
    directory = tmp_path / "results"
    directory.mkdir()
    (directory / "a-result.json").write_text("{}")
    return directory


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Puts a shell script on an otherwise bare PATH."""
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    monkeypatch.setenv("PATH", str(bin_dir))

    def put(name: str, script: str) -> None:
        path: Path = bin_dir / name
        path.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}")
        path.chmod(0o755)

    return put


def test_no_generator_no_report(results, tool, tmp_path):
    """Without allure or npx there is no report, and no error."""
    assert allure_html(results, tmp_path / "out") is None


def test_no_results_no_report(tool, tmp_path):
    """Without results no generator is started."""
    tool("npx", WRITES)
    assert allure_html(tmp_path, tmp_path / "out") is None


def test_npx_makes_the_report(results, tool, tmp_path):
    """What npx writes ends up in the destination, in place of an older report."""
    tool("npx", WRITES)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/old.html").write_text("old")
    assert allure_html(results, tmp_path / "out") == tmp_path / "out/index.html"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["index.html"]


def test_older_allure_is_asked_in_its_own_words(results, tool, tmp_path):
    """An allure that does not know the newer command is tried with the older one."""
    tool("allure", '[ "$1" = awesome ] && { echo "unknown command awesome" >&2; exit 2; }\n' + WRITES)
    said: list[str] = []
    assert allure_html(results, tmp_path / "out", progress=said.append)
    assert any("unknown command awesome" in line for line in said)


def test_failure_keeps_the_older_report_and_says_why(results, tool, tmp_path):
    """A failing generator leaves what was there, and its first telling line is passed on."""
    tool("npx", 'echo "npm warn x"; echo "npm error network unreachable"; exit 1')
    (tmp_path / "out").mkdir()
    (tmp_path / "out/index.html").write_text("old")
    said: list[str] = []
    assert allure_html(results, tmp_path / "out", progress=said.append) is None
    assert (tmp_path / "out/index.html").read_text() == "old"
    assert any("network unreachable" in line for line in said)


def test_a_hanging_generator_is_ended_with_its_children(results, tool, tmp_path):
    """The time limit holds for everything the generator has started."""
    marker = f"86399.{secrets.randbelow(10**9):09d}"
    tool("npx", f"sleep {marker} & sleep {marker}")
    started = time.monotonic()
    assert allure_html(results, tmp_path / "out", seconds=1.5) is None
    assert time.monotonic() - started < 10
    left = [p for p in psutil.process_iter(["cmdline", "status"]) if marker in (p.info["cmdline"] or ())]
    assert not [p for p in left if p.info["status"] != psutil.STATUS_ZOMBIE]
