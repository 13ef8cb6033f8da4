"""``./run``: what it starts for a job is what tox.ini says, and an unknown job is told in two lines."""

import configparser
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
loader = importlib.machinery.SourceFileLoader("run_script", str(ROOT / "run"))
run = importlib.util.module_from_spec(importlib.util.spec_from_loader("run_script", loader))
sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
loader.exec_module(run)
sys.dont_write_bytecode = before

JOBS = ["lint", "selftests", "conformance", "conformance-local-1.35", "conformance-kind-1.37"]


def commands(directory: Path, name: str, *options: str) -> str:
    """What tox would run."""
    tox = run.HOME / "bin" / "tox" if (run.HOME / "bin" / "tox").exists() else shutil.which("tox")
    if tox is None:
        pytest.skip("tox is not installed here")
    command = [tox, "config", "-q", "-e", name, "-k", "commands", "--workdir", directory]
    if options:
        command += ["--", *options]
    out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=_clean()).stdout
    return out.partition("commands = ")[2].strip()


def _clean() -> dict[str, str]:
    """The environment without what a tox around these tests has put there."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("TOX_", "PYTEST_"))}


@pytest.mark.parametrize("options", [(), ("-k", "rbac")])
@pytest.mark.parametrize("leg", ["conformance-local-1.35", "conformance-kind-1.37"])
def test_a_leg_is_the_same_command_by_run_and_by_tox(tmp_path, leg, options):
    """./run puts a leg into the environment all legs share, with the command tox.ini has for it."""
    name, given = run.environment(leg, list(options))
    assert name == "conformance"
    assert commands(tmp_path, name, *given) == commands(tmp_path, leg, *options)


@pytest.mark.parametrize("options", [[], ["-k", "rbac", "@reports/not-judged.txt"]])
def test_options_replace_the_jobs_own_and_none_leaves_them(options):
    """Without options a job runs with its own, as tox has it; a list of checks replaces all of them."""
    if not (run.HOME / "bin" / "tox").exists():
        pytest.skip("./run has not been used here")
    ((command, variables),) = run.commands([str(run.HOME / "bin" / "tox")], "conformance", options)
    if options:
        assert command == ["pytest", "--full-report", *options]
    else:
        own = ["-n", "2", "--dist", "worksteal", "-m", "not slow"]
        assert command == ["pytest", "suites", "--full-report", *own]
    assert variables["PVAFFINITY_COMMAND"] == "./run conformance"


@pytest.mark.parametrize("job", ["lint", "selftests", "conformance", "conformance-local-1.34,lint"])
def test_other_jobs_are_passed_on(job):
    """A plain job, or several, goes to tox as it is."""
    assert run.environment(job, ["-x"]) == (job, ["-x"])


@pytest.mark.parametrize(
    ("job", "close"),
    [
        ("confromance", "conformance"),
        ("conformance-kind-1.33", "conformance-kind-1.37"),
        ("lint,selftest", "selftests"),
    ],
)
def test_an_unknown_job_is_told_in_two_lines(job, close, capsys):
    """The first line names the job and what it is close to, the second all there are; exit code 2."""
    with pytest.raises(SystemExit) as stopped:
        run.known(job.split(","), JOBS)
    what, fix = capsys.readouterr().err.splitlines()
    assert stopped.value.code == 2
    assert f"did you mean {close}?" in what
    assert all(name in fix for name in JOBS)
    run.known(JOBS, JOBS)


def test_legs_are_known_to_tox_for_every_release():
    """tox.ini has a leg per provider for every release of versions.toml."""
    from pvaffinity.versions import load_versions

    parser = configparser.ConfigParser()
    parser.read(ROOT / "tox.ini")
    minors = ", ".join(release.minor for release in load_versions().releases)
    assert f"testenv:conformance-{{local, kind}}-{{{minors}}}" in parser


class Tox:
    """Stands in for tox: its answers, and what it was asked."""

    def __init__(self, code=0):
        self.code, self.asked = code, []

    def __call__(self, command, **_):
        self.asked.append(command)
        told = """[testenv:conformance]
commands = pytest suites --full-report -k 'a b'
pass_env =
  KIND_*
set_env =
  A=b=c
env_bin_dir = /its/bin
"""
        return subprocess.CompletedProcess(command, self.code, told)


@pytest.fixture
def tox(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "HOME", tmp_path)
    monkeypatch.setattr(run, "undisturbed", made := Tox())
    return made


def test_a_command_gets_what_tox_would_give_it(tox, monkeypatch):
    """Its words, the variables that tox.ini passes on, those that it sets, and the environment's programs first."""
    monkeypatch.setenv("KIND_IMAGE", "x")
    monkeypatch.setenv("PYTHONPATH", "y")
    ((command, variables),) = run.commands(["tox"], "conformance", ["-k", "a b"])
    assert command == ["pytest", "suites", "--full-report", "-k", "a b"]
    assert (variables["KIND_IMAGE"], variables["A"], "PYTHONPATH" in variables) == ("x", "b=c", False)
    assert variables["PATH"].startswith("/its/bin:")


@pytest.mark.parametrize("chosen", ["@reports/not-judged.txt", "suites/test_rbac.py"])
def test_checks_that_are_named_replace_all_of_them(tox, chosen):
    """Not the whole of suites/ is run beside a list of checks."""
    ((command, _),) = run.commands(["tox"], "conformance", [chosen])
    assert "suites" not in command


def test_an_environment_that_was_cut_off_while_made_is_made_anew(tox):
    """For tox it is whole: only the next preparation that comes to its end says that it is."""
    tox.code = 1
    with pytest.raises(SystemExit):
        run.prepare(["tox"], "conformance")
    tox.code = 0
    for _ in range(2):
        run.prepare(["tox"], "conformance")
    assert ["--recreate" in command for command in tox.asked if "run" in command] == [False, True, False]
