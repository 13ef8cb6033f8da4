"""``pvaffinity mutants`` from the catalogue to the table, with a stand-in for Go and one for the suite."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pvaffinity.cli.mutants import mutants
from pvaffinity.errors import UserError
from pvaffinity.mutants.catalogue import COMPONENTS
from selftests.awaiting import eventually
from selftests.faked_go import FakeGo

CATALOGUE = """
[[mutant]]
name = "blinded"
does = "sees nothing"
file = "k8s.io/kubernetes/pkg/eyes.go"
find = "open"
put = "shut"
breaks = ["race"]

[[mutant]]
name = "renamed"
does = "sees by another name"
file = "k8s.io/kubernetes/pkg/eyes.go"
find = "eyes"
put = "ears"
harmless = true
"""
SUITE = '''
"""Finds race broken where the kubelet is altered so that eyes are shut."""
import json, os, time
from pathlib import Path

def pytest_addoption(parser):
    for name in ("--provider", "--binaries", "--kubernetes-version", "--reports"):
        parser.addoption(name)

def pytest_keyboard_interrupt():
    Path("interrupted").touch()

def pytest_sessionfinish(session):
    if hasattr(session.config, "workerinput"):
        return
    kubelet = Path(session.config.getoption("--binaries"), "kubelet")
    assert not kubelet.is_symlink() and kubelet.with_name("kubectl").is_symlink()
    broken = "blinded" in session.config.getoption("--reports")
    race = {"id": "test_race.py::test_it[1.37-gate-on]", "outcome": "failed" if broken else "passed"}
    gate = {"id": "test_gate.py::test_it[1.37-gate-on]", "outcome": "passed"}
    behaviours = [{"name": "race", "tests": [race]}, {"name": "gate", "tests": [gate]}]
    cluster = {"provider": "local", "kubernetes": "1", "configuration": "gate-on", "gate_wanted": "on",
               "gate_measured": "on", "behaviours": behaviours}
    Path(session.config.getoption("--reports"), "conformance.json").write_text(json.dumps(
        {"schema": "pvaffinity-conformance/1", "suite_version": "0", "clusters": [cluster]}))
'''
CHECK = """
import time
from pathlib import Path
def test_it():
    Path("begun").touch()
    while Path("hold").exists():
        time.sleep(0.02)
"""


@pytest.fixture
def checkout(tmp_path: Path, fake_go: FakeGo, own_run: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a suite and a catalogue of its own, as the current directory."""
    eyes = fake_go.root / "module" / "pkg" / "eyes.go"
    eyes.parent.mkdir()
    eyes.write_text("eyes are open")
    root = tmp_path / "checkout"
    (root / "suites").mkdir(parents=True)
    (root / "mutants").mkdir()
    (root / "conftest.py").write_text(SUITE)
    (root / "suites" / "test_it.py").write_text(CHECK)
    for component in COMPONENTS:
        (root / "mutants" / f"{component}.toml").write_text(CATALOGUE if component == "kubelet" else "")
    monkeypatch.chdir(root)
    return root


def call(*options: str):
    """The command's result; a :class:`UserError` is raised."""
    result = CliRunner().invoke(mutants, options)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_break_is_built_run_judged_and_listed(checkout: Path, fake_go: FakeGo) -> None:
    """Only the altered file differs from the release; the table has one killed and one green; exit code 0."""
    result = call()

    assert result.exit_code == 0, result.output
    assert "[1/2] killed: blinded (1 red, 0 stray, 0 not judged of 2 checks" in result.output
    assert "1 of 1 breaks killed; 1 of 1 harmless changes green." in result.output
    rows = json.loads(Path("reports/mutants/mutants.json").read_text())["mutants"]
    assert [row["verdict"] for row in rows] == ["killed", "green"]
    assert fake_go.builds()[-2:] == ["kubelet", "kubelet"]
    work = fake_go.root / "altered"
    overlay = json.loads((work / "overlay.json").read_text())["Replace"]
    assert [Path(path).name for path in overlay] == ["eyes.go"]
    assert (work / "altered.go").read_text() == "eyes are shut"
    assert (work / "sources").readlink() == fake_go.root / "module"
    assert (fake_go.root / "altered.mod").read_text().count("k8s.io/kubernetes => ") == 1


def test_a_second_run_builds_nothing(checkout: Path, fake_go: FakeGo) -> None:
    """Altered binaries are kept; with --resume, so are results, as long as the mutant is the same."""
    call()
    built = len(fake_go.builds())

    Path("begun").unlink()
    assert call("--resume").exit_code == 0
    assert not Path("begun").exists()
    assert call("--only", "renamed").exit_code == 0
    assert Path("begun").exists()
    assert len(fake_go.builds()) == built

    Path("mutants/kubelet.toml").write_text(CATALOGUE.replace("ears", "nose"))
    call("--resume")
    assert len(fake_go.builds()) == built + 1


def test_what_was_not_killed_fails_the_command(checkout: Path) -> None:
    """A promise that nobody saw broken, and a harmless change that somebody took for a break, are exit code 1."""
    other = CATALOGUE.replace('breaks = ["race"]', 'breaks = ["gate"]', 1)
    Path("mutants/kubelet.toml").write_text(other)
    result = call("--only", "blinded")
    assert result.exit_code == 1
    assert "misfire: blinded" in result.output


def test_a_text_that_does_not_fit_ends_it_before_anything_is_built(checkout: Path, fake_go: FakeGo) -> None:
    """The message names mutant, file and release, and all others that do not fit either."""
    (fake_go.root / "module" / "pkg" / "eyes.go").write_text("eyes and eyes")
    with pytest.raises(UserError) as caught:
        call()
    assert "mutant blinded does not fit Kubernetes" in caught.value.what
    assert "mutant renamed does not fit Kubernetes" in caught.value.detail
    assert "k8s.io/kubernetes/pkg/eyes.go" in caught.value.what
    assert not (fake_go.root / "altered").exists()


def test_what_does_not_compile_is_not_judged(checkout: Path, fake_go: FakeGo) -> None:
    """One mutant that cannot be built does not keep the others from being judged; the exit code is 1."""
    call("--only", "renamed")
    (fake_go.root / "fail").write_text("eyes.go:1: undefined: shut\n")
    result = call()
    assert result.exit_code == 1
    assert "not judged: blinded (mutant blinded cannot be built" in result.output
    assert "green: renamed" in result.output


def test_ctrl_c_lets_the_suite_clear_away(checkout: Path, fake_go: FakeGo) -> None:
    """The suite is interrupted once and waited for; what had been found out stays, and the exit code is 130."""
    call("--only", "renamed")
    Path("hold").touch()
    Path("begun").unlink()
    command = [sys.executable, "-c", "from pvaffinity.cli import main; main()", "mutants", "--resume"]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")
    try:
        eventually(lambda: Path("begun").exists())
        os.kill(started.pid, signal.SIGINT)
        _, errors = started.communicate(timeout=60)
    finally:
        Path("hold").unlink()
        started.kill()
    assert started.returncode == 130
    assert "the suite is deleting its clusters" in errors
    assert Path("interrupted").exists()
    assert not Path("reports/mutants/blinded/run.json").exists()


def test_it_wants_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are no suites it says where to run it."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="run it in a checkout of the project"):
        call("--list")


def test_list_says_what_would_run(checkout: Path) -> None:
    """Names, components and promises are listed without building anything."""
    shutil.rmtree("suites")
    Path("suites").mkdir()
    assert call("--list").output.splitlines() == [
        "blinded: kubelet, breaks race: sees nothing",
        "renamed: kubelet, harmless: sees by another name",
    ]
