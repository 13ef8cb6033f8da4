"""The registry of a session's clusters: made once, whoever asks; deleted by the owner, whatever happened."""

import errno
import multiprocessing
import os
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pvaffinity import leftovers
from pvaffinity.errors import UserError
from pvaffinity.registry import cluster_name
from selftests.recording import Recorder, registry, spec

pytestmark = pytest.mark.usefixtures("own_run")


def _obtain_elsewhere(tmp_path):
    registry(tmp_path).obtain(spec())


def test_processes_share_one_cluster(tmp_path):
    """Four processes that need the same cluster at once get one, created once."""
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_obtain_elsewhere, args=(tmp_path,)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert (tmp_path / "log").read_text().splitlines() == [f"create {spec().id}"]
    assert len(list(registry(tmp_path))) == 1


def test_another_configuration_is_another_cluster(tmp_path):
    """Gate off and gate on never share a cluster."""
    ours = registry(tmp_path)
    assert ours.obtain(spec("gate-on")).name != ours.obtain(spec("gate-off")).name


def test_a_failure_is_told_to_everyone_and_tried_once(tmp_path):
    """A cluster that does not start is not tried again by every test: all get the first error, word for word."""
    for _ in range(3):
        with pytest.raises(UserError) as caught:
            registry(tmp_path, fail="the API server exited").obtain(spec())
        assert (caught.value.what, caught.value.detail) == ("the API server exited", "the log's tail")
    assert (tmp_path / "log").read_text().count("create") == 1
    assert [error.what for error in registry(tmp_path).errors()] == ["the API server exited"]


def test_a_record_cut_short_by_a_full_disk_is_none(tmp_path, monkeypatch):
    """Where even the failure cannot be written down it is told all the same, and nothing half written is read."""

    def cut(self, text, **_):
        self.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def full(self, spec, progress):
        raise UserError("0 MB are free", "make room")

    ours = registry(tmp_path)
    monkeypatch.setattr(Recorder, "check", full)
    monkeypatch.setattr(Path, "write_text", cut)
    with pytest.raises(UserError, match="0 MB are free"):
        ours.obtain(spec())
    assert ours.errors() == []
    assert list(ours) == []


def test_the_owner_deletes_what_was_made(tmp_path):
    """Closing deletes every cluster, and a second close has nothing left to do."""
    ours = registry(tmp_path)
    made = ours.obtain(spec())
    assert ours.close() == ([], {})
    assert f"delete {made.name}" in (tmp_path / "log").read_text()
    ours.close()
    assert (tmp_path / "log").read_text().count("delete") == 1


def test_a_kept_cluster_is_disowned_so_that_it_outlives_the_session(tmp_path):
    """Keeping a cluster tells its provider; it is not deleted."""
    ours = registry(tmp_path)
    made = ours.obtain(spec())
    assert [kept.name for kept in ours.close(lambda _: True).kept] == [made.name]
    assert (tmp_path / "log").read_text().splitlines()[1:] == [f"disown {made.name}"]


def test_what_was_being_made_when_its_maker_died_is_deleted_too(tmp_path):
    """Intent is written before creation: a worker killed in between leaves a record that the owner acts on."""
    ours = registry(tmp_path)
    made = ours.obtain(spec())
    (made.directory / "cluster.json").unlink()  # as if the maker had died before it was done
    assert ours.close(lambda _: True) == ([], {})
    assert f"delete {made.name}" in (tmp_path / "log").read_text()


def test_progress_is_told_in_the_sessions_log(tmp_path):
    """What a worker's provider says reaches the file that the controller shows."""
    registry(tmp_path).obtain(spec())
    assert f"{spec().id}: half way" in (tmp_path / "session" / "progress.log").read_text()


def test_a_cluster_that_cannot_be_deleted_does_not_keep_the_others(tmp_path, monkeypatch):
    """All that can be deleted is; what cannot is told by name, and is tried again by the next close."""
    ours = registry(tmp_path)
    off, on = ours.obtain(spec("gate-off")), ours.obtain(spec("gate-on"))
    ours._providers("recorder").silent = "gate-off"
    kept, failed = ours.close()
    assert kept == []
    assert {name: error.what for name, error in failed.items()} == {off.name: "its engine is gone"}
    assert f"delete {on.name}" in (tmp_path / "log").read_text()
    ours._providers("recorder").silent = ""
    assert ours.close() == ([], {})
    assert f"delete {off.name}" in (tmp_path / "log").read_text()


def test_what_a_failed_creation_could_not_undo_is_deleted_at_the_end(tmp_path, monkeypatch):
    """Where the provider leaves half a cluster, all are told why it failed, and the session's end deletes it."""

    def create(self, spec, name, directory, *_):
        (directory / "kind.json").write_text("containers are left")
        raise UserError("kind could not create the cluster", "x")

    monkeypatch.setattr(Recorder, "create", create)
    ours = registry(tmp_path)
    for _ in range(2):
        with pytest.raises(UserError, match="kind could not create the cluster"):
            ours.obtain(spec())
    (left,) = (tmp_path / "clusters").iterdir()
    assert ours.close() == ([], {})
    assert (tmp_path / "log").read_text().splitlines() == [f"delete {left.name}"]


def test_half_a_cluster_of_a_maker_that_died_is_made_anew(tmp_path):
    """Who comes after a worker that was killed while it made the cluster deletes what there is, and makes it."""
    ours = registry(tmp_path)
    half = ours.obtain(spec())
    (half.directory / "cluster.json").unlink()
    whole = ours.obtain(spec())
    told = [line.split()[0] for line in (tmp_path / "log").read_text().splitlines()]
    assert told == ["create", "delete", "create"]
    assert [cluster.name for cluster in ours] == [whole.name]


@pytest.mark.parametrize(
    "config", ["gate-on", "gate-apiserver-only", "My Gate", "ÜÜ", "a-very-long-name-of-a-document"]
)
def test_names_will_do_for_hosts(config):
    """Whatever a document is called, a cluster's name is unique and fit for kind and for its nodes' host names."""
    wanted = replace(spec("gate-on"), config=replace(spec("gate-on").config, name=config))
    names = {cluster_name("a-prefix-of-16-c", wanted) for _ in range(20)}
    assert len(names) == 20
    assert all(re.fullmatch(r"a-prefix-of-16-c-[a-z0-9]+(-[a-z0-9]+)+", name) for name in names)
    assert max(len(f"{name}-control-plane") for name in names) <= 63


def test_a_cluster_is_claimed_before_anything_that_may_take_long(tmp_path, monkeypatch):
    """While binaries are still being built, minutes long, ``clean`` sees whose the cluster is and leaves it alone."""
    seen = []

    def slow(self, spec, name, directory, owner, progress):
        os.utime(directory, (time.time() - 300,) * 2)
        seen.extend((leftovers.find(), [str(each) for each in leftovers.find(everything=True)]))
        raise UserError("the build failed", "build it by hand")

    monkeypatch.setattr(Recorder, "create", slow)
    monkeypatch.setattr(leftovers, "clusters_dir", lambda: tmp_path / "clusters")
    with pytest.raises(UserError, match="the build failed"):
        registry(tmp_path).obtain(spec())
    unowned, (told,) = seen
    assert unowned == []
    assert f"its owner (process {os.getpid()}) runs" in told
    assert list((tmp_path / "clusters").iterdir()) == [], "nothing came of it, and nothing is left"
