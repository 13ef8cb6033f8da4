"""Clusters make room for each other where a machine does not hold all; who finds none is told."""

import multiprocessing
import os
import threading
import time

import pytest

from pvaffinity.errors import UserError
from selftests.recording import registry, spec

pytestmark = pytest.mark.usefixtures("own_run")


def test_a_cluster_that_nobody_uses_makes_room_and_is_still_told_of(tmp_path):
    """With room for one, the second cluster takes the place of the first, which stays in the session's account."""
    ours = registry(tmp_path, most=1)
    first = ours.obtain(spec("gate-on"), os.getpid())
    first.notes["id"] = spec("gate-on").id
    first.save()
    ours.release(spec("gate-on"), os.getpid())
    second = ours.obtain(spec("gate-off"), os.getpid())
    assert f"delete {first.name}" in (tmp_path / "log").read_text()
    assert [cluster.name for cluster in ours] == [second.name, first.name]
    assert "deleted 1.37-gate-on to make room" in (tmp_path / "session" / "progress.log").read_text()


def test_a_cluster_in_use_is_waited_for(tmp_path):
    """A cluster somebody uses is not taken away; the one who needs room waits until it is released."""
    ours = registry(tmp_path, most=1)
    ours.obtain(spec("gate-on"), os.getppid())
    timer = threading.Timer(1.0, ours.release, (spec("gate-on"), os.getppid()))
    timer.start()
    ours.obtain(spec("gate-off"), os.getpid())
    assert not timer.is_alive(), "the cluster was taken while it was in use"
    assert "waiting for room: 1.37-gate-on in use" in (tmp_path / "session" / "progress.log").read_text()


def test_nobody_waits_for_itself(tmp_path, monkeypatch):
    """Who uses a cluster and needs room for another is told that there is none: nobody else would let go of it."""

    def wait(_):
        raise AssertionError("it waits for itself")

    ours = registry(tmp_path, most=1)
    ours.obtain(spec("gate-on"), os.getpid())
    monkeypatch.setattr(time, "sleep", wait)
    with pytest.raises(UserError, match="the machine is full"):
        ours.obtain(spec("gate-off"), os.getpid())


def test_a_user_that_died_does_not_hold_a_cluster_for_ever(tmp_path):
    """The mark of a process that is gone counts for nothing."""
    ours = registry(tmp_path, most=1)
    gone = multiprocessing.get_context("spawn").Process(target=print)
    gone.start()
    gone.join()
    ours.obtain(spec("gate-on"), gone.pid)
    assert ours.obtain(spec("gate-off"), os.getpid())


def test_a_machine_that_is_full_of_others_is_an_error_told_to_everyone(tmp_path):
    """With no cluster of ours to delete there is nothing to wait for: the shortage is told, once for all."""
    for _ in range(2):
        with pytest.raises(UserError, match="the machine is full"):
            registry(tmp_path, most=0).obtain(spec(), os.getpid())
    assert [error.what for error in registry(tmp_path).errors()] == ["the machine is full"]


def test_clusters_that_are_to_be_kept_make_no_room(tmp_path):
    """Where clusters are kept at the end, who finds no room is told at once instead of waiting for ever."""
    ours = registry(tmp_path, most=1, keeps=True)
    ours.obtain(spec("gate-on"), 0)
    with pytest.raises(UserError, match="the machine is full"):
        ours.obtain(spec("gate-off"), os.getpid())
    assert [cluster.config for cluster in ours] == ["gate-on"]


def test_a_cluster_that_cannot_be_deleted_makes_no_room(tmp_path):
    """It is said, tried once, and not waited for: who needs the room is told that there is none."""
    ours = registry(tmp_path, most=1)
    off = ours.obtain(spec("gate-off"))
    ours._providers("recorder").silent = off.name
    with pytest.raises(UserError, match="the machine is full"):
        ours.obtain(spec("gate-on"), os.getpid())
    said = (tmp_path / "session" / "progress.log").read_text()
    assert said.count("could not be deleted to make room: its engine is gone") == 1
