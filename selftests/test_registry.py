"""The registry of a session's clusters: made once, whoever asks; deleted by the owner, whatever happened."""

import multiprocessing
import os
from pathlib import Path

import pytest

from pvaffinity.clusterconfig import load_config
from pvaffinity.errors import UserError
from pvaffinity.providers.base import Cluster, ClusterSpec
from pvaffinity.registry import Registry
from pvaffinity.versions import load_versions


class Recorder:
    """A provider that writes down what it is asked, in files, so that other processes see it."""

    name = "recorder"

    def __init__(self, log: Path, fail: str = "") -> None:
        self.log, self.fail = log, fail

    def note(self, line):
        with self.log.open("a") as out:
            out.write(line + "\n")

    def check(self, spec, progress):
        pass

    def create(self, spec, name, directory, owner, progress):
        self.note(f"create {spec.id}")
        progress("half way")
        if self.fail == "interrupt":
            raise KeyboardInterrupt
        if self.fail:
            raise UserError(self.fail, "do something", detail="the log's tail")
        (directory / "state").write_text(str(owner))
        return Cluster(
            name, "recorder", spec.release.version, spec.config.name, directory, directory / "k", None, frozenset()
        )

    def delete(self, cluster, progress=None):
        self.note(f"delete {cluster.name}")

    def disown(self, cluster):
        self.note(f"disown {cluster.name}")


def registry(tmp_path, fail=""):
    recorder = Recorder(tmp_path / "log", fail)
    return Registry(tmp_path / "session", tmp_path / "clusters", os.getpid(), lambda _: recorder)


def spec(config="gate-on"):
    return ClusterSpec("recorder", load_versions().newest, load_config(config))


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


def test_the_owner_deletes_what_was_made(tmp_path):
    """Closing deletes every cluster, and a second close has nothing left to do."""
    ours = registry(tmp_path)
    made = ours.obtain(spec())
    assert ours.close() == []
    assert f"delete {made.name}" in (tmp_path / "log").read_text()
    ours.close()
    assert (tmp_path / "log").read_text().count("delete") == 1


def test_a_kept_cluster_is_disowned_so_that_it_outlives_the_session(tmp_path):
    """Keeping a cluster tells its provider; it is not deleted."""
    ours = registry(tmp_path)
    made = ours.obtain(spec())
    assert [kept.name for kept in ours.close(lambda _: True)] == [made.name]
    assert (tmp_path / "log").read_text().splitlines()[1:] == [f"disown {made.name}"]


def test_what_was_being_made_when_its_maker_died_is_deleted_too(tmp_path):
    """Intent is written before creation: a worker killed in between leaves a record that the owner acts on."""
    ours = registry(tmp_path)
    made = ours.obtain(spec())
    (made.directory / "cluster.json").unlink()  # as if the maker had died before it was done
    assert ours.close(lambda _: True) == []
    assert f"delete {made.name}" in (tmp_path / "log").read_text()


def test_progress_is_told_in_the_sessions_log(tmp_path):
    """What a worker's provider says reaches the file that the controller shows."""
    registry(tmp_path).obtain(spec())
    assert f"{spec().id}: half way" in (tmp_path / "session" / "progress.log").read_text()
