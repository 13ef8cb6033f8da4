"""What nobody owns is found by its mark and removed; what somebody owns, or what is not ours, is left alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time

import pytest
from click.testing import CliRunner

from pvaffinity import leftovers, paths
from pvaffinity.cli.clean import clean
from pvaffinity.errors import UserError
from pvaffinity.local.owner import Owner, remove_tree
from pvaffinity.local.plan import MARKER


@pytest.fixture
def run_directory(tmp_path, monkeypatch):
    path = tmp_path / "r"
    monkeypatch.setattr(leftovers, "run_dir", lambda: path)
    monkeypatch.setattr(leftovers, "failures_dir", lambda: path / "failed")
    (path / "clusters").mkdir(parents=True)
    return path


@pytest.fixture
def process():
    started = []

    def start(directory=None):
        env = {**os.environ, **({MARKER: str(directory)} if directory else {})}
        started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "kubelet"], env=env))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.wait()


def _cluster(root, name, owner):
    directory = root / "clusters" / name
    directory.mkdir()
    (directory / "owner.json").write_text(json.dumps(owner))
    return directory


DEAD = {"pid": 4_190_000, "start": 1}


def _me():
    owner = Owner.of(os.getpid())
    return {"pid": owner.pid, "start": owner.start}


def test_only_what_nobody_owns_is_found(run_directory):
    """A living owner's cluster is found only when everything is asked for."""
    dead, mine = _cluster(run_directory, "dead", DEAD), _cluster(run_directory, "mine", _me())
    assert [each.directory for each in leftovers.find()] == [dead]
    assert {each.directory for each in leftovers.find(everything=True)} == {dead, mine}


def test_a_reused_process_number_is_no_owner(run_directory):
    """A process with the owner's number but another start time does not own the cluster."""
    dead = _cluster(run_directory, "reused", _me() | {"start": 1})
    assert [each.directory for each in leftovers.find()] == [dead]


def test_processes_are_told_by_their_mark_not_by_their_name(run_directory, process):
    """A process that is merely called kubelet survives; the marked one does not."""
    dead = _cluster(run_directory, "dead", DEAD)
    ours, foreign, other = process(dead), process(), process(run_directory / "clusters" / "other")
    (found,) = [each for each in leftovers.find() if each.directory == dead]
    assert found.processes == (ours.pid,)
    leftovers.remove(found)
    ours.wait(60)
    assert foreign.poll() is None
    assert other.poll() is None
    assert not dead.exists()


def test_processes_without_their_directory_are_found_as_well(run_directory, process):
    """If only the directory was removed, its processes are still leftovers."""
    ours = process(run_directory / "clusters" / "lost")
    (found,) = leftovers.find()
    leftovers.remove(found)
    ours.wait(60)


def test_a_directory_that_is_just_being_made_is_left_alone(run_directory):
    """A directory without an owner's file is somebody's start for its first minute."""
    young = run_directory / "clusters" / "young"
    young.mkdir()
    assert leftovers.find() == []
    os.utime(young, (time.time() - 300,) * 2)
    assert [each.directory for each in leftovers.find()] == [young]


def test_a_kept_cluster_is_no_leftover_while_it_runs(run_directory, process):
    """A cluster that was left running on purpose is removed only by --all, or once it has ended."""
    kept = _cluster(run_directory, "kept", {"kept": True})
    running = process(kept)
    assert leftovers.find() == []
    assert [each.directory for each in leftovers.find(everything=True)] == [kept]
    running.kill()
    running.wait()
    assert [each.directory for each in leftovers.find()] == [kept]


def test_clean_says_what_it_does(run_directory):
    """The command names what it removes and what it keeps, and says so when there is nothing."""
    _cluster(run_directory, "dead", DEAD)
    _cluster(run_directory, "mine", _me())
    assert "would remove dead: its owner (process 4190000) is gone" in CliRunner().invoke(clean, ["--dry-run"]).output
    output = CliRunner().invoke(clean).output
    assert "removing dead" in output
    assert "kept mine" in output
    assert not (run_directory / "clusters" / "dead").exists()
    assert "nothing to clean" in CliRunner().invoke(clean).output


def test_logs_of_failed_creations_do_not_pile_up(run_directory):
    """They are kept for a week, or until everything is removed; nothing is removed in a dry run."""
    old, new = run_directory / "failed" / "pv-old", run_directory / "failed" / "pv-new"
    for path in (old, new):
        path.mkdir(parents=True)
        (path / "kind.log").touch()
    os.utime(old, times=(0, time.time() - 8 * 24 * 3600))
    assert "would remove logs of pv-old" in CliRunner().invoke(clean, ["--dry-run"]).output
    assert old.exists()
    assert CliRunner().invoke(clean).output == "removing logs of pv-old, which could not be created\n"
    assert (old.exists(), new.exists()) == (False, True)
    assert CliRunner().invoke(clean).output == "nothing to clean\n"
    assert "removing logs of pv-new" in CliRunner().invoke(clean, ["--all"]).output
    assert not new.exists()


def test_directories_without_permissions_are_removed(tmp_path):
    """A directory nobody may enter does not stop the removal."""
    deep = tmp_path / "tree" / "closed" / "deep"
    deep.mkdir(parents=True)
    (deep / "file").touch()
    deep.chmod(0)
    deep.parent.chmod(0o500)
    remove_tree(tmp_path / "tree")
    assert not (tmp_path / "tree").exists()
    remove_tree(tmp_path / "tree")


def test_the_directory_of_a_session_goes_when_its_process_has_ended(run_directory):
    """A killed session's directory is removed; one whose process runs, and one that says nothing, are left alone."""
    for name in ("living", "killed", "silent"):
        (run_directory / "sessions" / name).mkdir(parents=True)
    leftovers.claim_session(run_directory / "sessions" / "living")
    (run_directory / "sessions" / "killed" / "owner").write_text('{"pid": 1, "start": 1}')

    assert leftovers.remove_ended_sessions() == [run_directory / "sessions" / "killed"]
    assert {path.name for path in (run_directory / "sessions").iterdir()} == {"living", "silent"}


def test_scratch_of_a_killed_process_goes_and_that_of_a_living_one_stays(monkeypatch):
    """Keys and caches of a process that was killed are removed; those of one that runs are not touched."""
    with tempfile.TemporaryDirectory(dir="/tmp") as run:  # short: sockets lie in a run directory
        monkeypatch.setenv("PVAFFINITY_RUN", run)
        mine = paths.scratch_dir("identity")
        gone = subprocess.Popen(["true"])
        gone.wait()
        dead = mine.with_name(f"kubectl-{gone.pid}-abc")
        dead.mkdir()
        assert leftovers.remove_ended_sessions() == [dead]
        assert mine.exists()
        assert not dead.exists()


def test_clean_goes_on_where_an_engine_is_gone(run_directory, monkeypatch, tmp_path):
    """A cluster whose engine does not answer is kept and told at the end, exit code 2; all others are removed."""
    silent = _cluster(run_directory, "a-silent", DEAD)
    where = f"unix://{tmp_path}/nowhere.sock"
    (silent / "kind.json").write_text(json.dumps({"name": "a-silent", "engine": {"DOCKER_HOST": where}}))
    gone = _cluster(run_directory, "b-gone", DEAD)
    tool = tmp_path / "docker"
    tool.write_text("#!/bin/sh\necho Cannot connect to the Docker daemon >&2\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="a-silent could not be removed: its container engine is gone") as caught:
        clean.main([], standalone_mode=False)
    assert f"start that engine (DOCKER_HOST={where}), then: pvaffinity clean" in caught.value.fix
    assert silent.exists()
    assert not gone.exists()


def test_what_could_not_be_removed_is_told_of_each():
    """Several failures are one error, with what to do about each."""
    told = leftovers.not_removed({"a": UserError("no engine", "start it"), "b": UserError("no right", "ask root")})
    assert told.what == "2 clusters could not be removed: a, b"
    assert "a: no engine\n  to fix: start it\nb: no right" in told.detail
