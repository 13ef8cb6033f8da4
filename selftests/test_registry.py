"""The registry of a session's clusters: made once, whoever asks; deleted by the owner, whatever happened."""

import errno
import multiprocessing
import os
import re
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pvaffinity import room
from pvaffinity.clusterconfig import load_config
from pvaffinity.errors import RoomError, UserError
from pvaffinity.providers.base import Cluster, ClusterSpec, Power
from pvaffinity.registry import Registry, cluster_name
from pvaffinity.versions import load_versions
from selftests.holding import holders

POWERS = frozenset({Power.COMPONENT_LOGS})

pytestmark = pytest.mark.usefixtures("own_run")


class Recorder:
    """A provider that writes down what it is asked, in files, so that other processes see it."""

    name = "recorder"

    def __init__(self, log: Path, fail: str = "", most: int | None = None) -> None:
        self.log, self.fail, self.most = log, fail, most
        self.silent, self.logs = "", "I0102 started"

    def note(self, line):
        with self.log.open("a") as out:
            out.write(line + "\n")

    def check(self, spec, progress):
        made = [line.split()[0] for line in self.log.read_text().splitlines()] if self.log.exists() else []
        if self.most is not None and made.count("create") - made.count("delete") >= self.most:
            raise RoomError("the machine is full", "end something")

    def create(self, spec, name, directory, owner, progress):
        self.note(f"create {spec.id}")
        progress("half way")
        if self.fail == "interrupt":
            raise KeyboardInterrupt
        if self.fail:
            raise UserError(self.fail, "do something", detail="the log's tail")
        (directory / "state").write_text(str(owner))
        return Cluster(
            name, "recorder", spec.release.version, spec.config.name, directory, directory / "k", None, POWERS
        )

    def delete(self, cluster, progress=None):
        if self.silent and self.silent in cluster.name:
            raise UserError("its engine is gone", "start it")
        self.note(f"delete {cluster.name}")

    def export_logs(self, cluster, destination):
        self.note(f"logs {cluster.name}")
        if isinstance(self.logs, BaseException):
            raise self.logs
        destination.mkdir(parents=True)
        (destination / "kubelet.log").write_text(self.logs)

    def disown(self, cluster):
        self.note(f"disown {cluster.name}")


def registry(tmp_path, fail="", most=None, keeps=False):
    recorder = Recorder(tmp_path / "log", fail, most)
    where = {"directory": tmp_path / "session", "clusters": tmp_path / "clusters", "logs": tmp_path / "evidence"}
    return Registry(owner=os.getpid(), providers=lambda _: recorder, keeps=keeps, **where)


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


def test_logs_are_saved_before_a_cluster_is_deleted_on_which_something_failed(tmp_path):
    """At the end the logs of that cluster are exported first, it is said where they are, and no other's are."""
    ours = registry(tmp_path)
    old = tmp_path / "evidence" / spec().id / "an-earlier-session"
    old.mkdir(parents=True)
    off, on = ours.obtain(spec("gate-off")), ours.obtain(spec("gate-on"))
    registry(tmp_path).want_logs(spec("gate-on"))  # in another process
    assert ours.close() == ([], {})
    told = (tmp_path / "log").read_text().splitlines()[2:]
    assert told == [f"delete {off.name}", f"logs {on.name}", f"delete {on.name}"]
    saved = tmp_path / "evidence" / spec("gate-on").id / on.name
    assert [path.name for path in saved.iterdir()] == ["kubelet.log"]
    assert f"logs of {on.name}: {saved}" in (tmp_path / "session" / "progress.log").read_text()
    assert not old.exists()


def test_logs_are_saved_before_a_cluster_makes_room(tmp_path):
    """So are those of one that makes room; the one made in its place begins anew, and the first logs stay."""
    ours = registry(tmp_path, most=1)
    first = ours.obtain(spec("gate-on"))
    ours.want_logs(spec("gate-on"))
    ours.obtain(spec("gate-off"))
    ours.obtain(spec("gate-on"))
    ours.obtain(spec("gate-off"))
    third = ours.obtain(spec("gate-on"))
    ours.want_logs(spec("gate-on"))
    ours.close()
    log = (tmp_path / "log").read_text().splitlines()
    assert [line for line in log if line.startswith("logs")] == [f"logs {first.name}", f"logs {third.name}"]
    assert log.index(f"logs {first.name}") + 1 == log.index(f"delete {first.name}")
    assert {path.name for path in (tmp_path / "evidence" / spec("gate-on").id).iterdir()} == {
        first.name,
        third.name,
    }


@pytest.mark.parametrize("error", [UserError("kind is gone", "x"), OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_logs_that_cannot_be_had_keep_no_cluster(tmp_path, error):
    """Where they cannot be exported, or Ctrl-C comes meanwhile, the cluster is deleted all the same."""
    ours = registry(tmp_path)
    made = ours.obtain(spec())
    ours.want_logs(spec())
    ours._providers("recorder").logs = error
    assert ours.close() == ([], {})
    assert (tmp_path / "log").read_text().splitlines()[1:] == [f"logs {made.name}", f"delete {made.name}"]
    if not isinstance(error, KeyboardInterrupt):
        assert f"no logs of {made.name}: " in (tmp_path / "session" / "progress.log").read_text()


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


def test_a_cluster_that_cannot_be_deleted_makes_no_room(tmp_path):
    """It is said, tried once, and not waited for: who needs the room is told that there is none."""
    ours = registry(tmp_path, most=1)
    off = ours.obtain(spec("gate-off"))
    ours._providers("recorder").silent = off.name
    with pytest.raises(UserError, match="the machine is full"):
        ours.obtain(spec("gate-on"), os.getpid())
    said = (tmp_path / "session" / "progress.log").read_text()
    assert said.count("could not be deleted to make room: its engine is gone") == 1


@pytest.fixture
def other(tmp_path):
    """Starts processes that take a turn of the session."""
    with holders(tmp_path / "session") as start:
        yield start


def test_nothing_is_made_while_somebody_has_the_session_alone(tmp_path, other):
    """A cluster that is there can be had; to make one, its maker waits until the other is done."""
    ours = registry(tmp_path)
    ours.obtain(spec("gate-on"))
    single = other("alone")
    assert single.has_it(60)
    ours.obtain(spec("gate-on"))
    maker = threading.Thread(target=ours.obtain, args=(spec("gate-off"),), daemon=True)
    maker.start()
    maker.join(0.5)
    assert (tmp_path / "log").read_text().count("create") == 1
    single.done()
    maker.join(60)
    assert (tmp_path / "log").read_text().count("create") == 2


def test_who_waits_for_room_keeps_nobody_from_having_the_session_alone(tmp_path, other):
    """The user of the cluster whose room is needed may want the session alone first: it gets it, and both go on."""
    ours = registry(tmp_path, most=1)
    ours.obtain(spec("gate-on"), os.getppid())
    maker = threading.Thread(target=ours.obtain, args=(spec("gate-off"), os.getpid()), daemon=True)
    maker.start()
    progress = tmp_path / "session" / "progress.log"
    while "waiting for room" not in progress.read_text():
        time.sleep(0.02)
    user = other("alone")
    assert user.has_it(60), "who waits for room holds a turn of the session"
    user.done()
    ours.release(spec("gate-on"), os.getppid())
    maker.join(60)
    assert not maker.is_alive()


class Slow(Recorder):
    """Reserves half of what there is, and takes until another creation has begun, or so long that one would have."""

    def __init__(self, log, whole):
        super().__init__(log)
        self.whole = whole

    def check(self, spec, progress):
        def refuse(others):
            return RoomError("the machine is full", "end something") if others.memory + 2 > self.whole else None

        room.reserve(room.Room(memory=2), refuse)

    def create(self, spec, name, directory, owner, progress):
        made = super().create(spec, name, directory, owner, progress)
        deadline = time.monotonic() + (2 if self.whole < 4 else 60)
        while self.log.read_text().count("create") < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        self.note(f"made {spec.id}")
        return made


def _make_slowly(tmp_path, config, whole):
    slow = Slow(tmp_path / "log", whole)
    Registry(tmp_path / "session", tmp_path / "clusters", os.getppid(), lambda _: slow).obtain(spec(config))


@pytest.mark.parametrize("whole,order", [(4, ["create", "create", "made", "made"]), (3, ["create", "made"] * 2)])
def test_clusters_are_made_side_by_side_as_far_as_there_is_room(tmp_path, monkeypatch, whole, order):
    """Two creations at a time do not both count on the same memory: the second begins when the first is up."""
    with tempfile.TemporaryDirectory(dir="/tmp") as run:
        monkeypatch.setenv("PVAFFINITY_RUN", run)
        context = multiprocessing.get_context("spawn")
        makers = [
            context.Process(target=_make_slowly, args=(tmp_path, name, whole)) for name in ("gate-off", "gate-on")
        ]
        for maker in makers:
            maker.start()
        for maker in makers:
            maker.join(120)
        assert [maker.exitcode for maker in makers] == [0, 0]
        assert [line.split()[0] for line in (tmp_path / "log").read_text().splitlines()] == order
        assert room.reserved() == room.Room()


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
