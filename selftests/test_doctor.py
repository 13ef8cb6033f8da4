"""The doctor tells what is vital from what is advice, and a remedy with everything that is wrong."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from pvaffinity.cli import doctor as command
from pvaffinity.doctor import CHECKS, Check, Finding, examine, runnable
from pvaffinity.errors import UserError
from pvaffinity.local import preflight
from pvaffinity.local.gobuild import BUILD_DISK
from pvaffinity.local.toolchain import INSTALL


def test_a_failed_vital_check_blocks_the_providers_that_need_it():
    """What is needed by one provider does not block the other."""
    findings = [Finding("namespaces", False, "", "", ("local",)), Finding("Go", True, ""), Finding("kind", True, "")]
    assert runnable(findings) == {"local": ["namespaces"], "kind": []}


def test_any_one_source_of_binaries_is_enough():
    """Only if cache, downloads and Go are all missing the local provider has no binaries."""
    names = ("binaries cached", "downloads", "Go")
    for present in names:
        assert runnable([Finding(name, name == present, "") for name in names])["local"] == []
    assert runnable([Finding(name, False, "") for name in names])["local"] == [
        "binaries: binaries cached or downloads or Go"
    ]


def test_a_check_that_breaks_is_a_finding():
    """No check takes the doctor down; its remedy is kept where it has one."""

    def broken():
        raise UserError("no such place", "make one")

    (finding,) = examine([Check("broken", broken, ("local",))])
    assert (finding.ok, finding.found, finding.fix) == (False, "cannot be found out: no such place", "make one")


@pytest.mark.parametrize(
    ("version", "ok"), [("go1.20.14", False), ("go1.21.0", True), ("go1.27.3", True), ("devel +a1b2c3", True)]
)
def test_the_doctor_and_the_build_want_the_same_go(monkeypatch, tmp_path, version, ok):
    """A Go that the build would refuse is refused here, with the build's own words; any other is well."""
    go = tmp_path / "go"
    go.write_text(f"#!/bin/sh\necho go version {version} linux/amd64\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (finding,) = examine([check for check in CHECKS if check.name == "Go"])
    assert (finding.ok, version in finding.found) == (ok, True)
    assert ok or finding.fix.startswith(INSTALL)


def test_a_go_that_does_not_run_is_told(monkeypatch, tmp_path):
    """A Go that fails without a word is a finding with a remedy, no stack trace."""
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\nexit 1\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (finding,) = examine([check for check in CHECKS if check.name == "Go"])
    assert (finding.ok, finding.found) == (False, "it does not run")


def test_the_doctor_tells_what_a_build_takes():
    """Besides what binaries take, the doctor tells the room that the build checks for."""
    (finding,) = examine([check for check in CHECKS if check.name == "disk for binaries"])
    assert f"{BUILD_DISK >> 20} MB with Go's caches where no download answers" in finding.found


def test_every_check_of_this_machine_runs_and_names_a_remedy():
    """Every finding that is not well says what to do."""
    findings = examine()
    assert [f.name for f in findings] == [c.name for c in CHECKS]
    assert all(f.fix for f in findings if not f.ok)
    assert all(f.found for f in findings)


@pytest.mark.parametrize(("well", "code"), [(True, 0), (False, 2)])
def test_the_exit_code_says_whether_anything_can_run(monkeypatch, well, code):
    """0 if at least one provider can run, else 2; JSON says which and why."""
    found = [Finding("n", well, "f", "" if well else "mend it", ("local",)), Finding("kind", False, "", "i", ("kind",))]
    monkeypatch.setattr(command, "examine", lambda: found)
    result = CliRunner().invoke(command.doctor, ["--json"])
    assert result.exit_code == code
    assert json.loads(result.stdout)["providers"] == {"local": [] if well else ["n"], "kind": ["kind"]}
    shown = CliRunner().invoke(command.doctor).output
    assert ("to fix: mend it" in shown) is not well


def test_what_is_long_can_be_pasted_from_a_pipe(monkeypatch):
    """An address that is longer than a line is written whole, in one line."""
    address = "https://example.org/" + "very-long/" * 20
    monkeypatch.setattr(command, "examine", lambda: [Finding("n", False, "f", f"see {address}", ("local",))])
    assert f"to fix: see {address}\n" in CliRunner().invoke(command.doctor).output


@pytest.mark.skipif(not shutil.which("unshare") or bool(preflight.try_namespaces()[0]), reason="needs user namespaces")
def test_a_machine_without_user_namespaces_is_told_the_remedy():
    """With max_user_namespaces=0 (tried for real, in a namespace) the check names the sysctl, not 'No space left'."""
    script = (
        "import sys; from pathlib import Path; Path('/proc/sys/user/max_user_namespaces').write_text('0')\n"
        "from pvaffinity.local.preflight import *\n"
        "print(*try_namespaces(), '|', namespaces_remedy(28))"
    )
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
    )
    step, remedy = done.stdout.split("|")
    assert step.strip() == f"create user, network and mount namespaces {errno.ENOSPC}"
    assert remedy.strip() == "sudo sysctl -w user.max_user_namespaces=15000"


@pytest.mark.parametrize(
    ("memory", "disk", "words"), [(1, 1 << 40, "MB of memory are free"), (1 << 40, 1, "MB are free in")]
)
def test_too_little_memory_or_disk_is_told_before_anything_is_created(monkeypatch, memory, disk, words):
    """The check fails early, with numbers and a remedy."""
    monkeypatch.setattr(preflight, "try_namespaces", lambda: ("", 0))
    monkeypatch.setattr(preflight.inotify, "free_instances", lambda _: 1000)  # others on this machine may have them all
    monkeypatch.setattr(preflight.psutil, "virtual_memory", lambda: type("M", (), {"available": memory}))
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: type("D", (), {"free": disk}))
    with pytest.raises(UserError, match=words):
        preflight.check_machine(6)


def test_refused_namespaces_are_told_before_anything_is_created(monkeypatch):
    """The check fails with the step that was refused and a remedy."""
    monkeypatch.setattr(preflight, "try_namespaces", lambda: ("mount a fresh /proc", errno.EPERM))
    with pytest.raises(UserError, match="does not let us mount a fresh /proc: Operation not permitted") as caught:
        preflight.check_machine(6)
    assert caught.value.fix
