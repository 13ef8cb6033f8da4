"""Who makes clusters at a time: side by side where there is room, and not while somebody has the session alone."""

import multiprocessing
import os
import tempfile
import threading
import time

import pytest

from pvaffinity import room
from pvaffinity.errors import RoomError
from pvaffinity.registry import Registry
from selftests.holding import holders
from selftests.recording import Recorder, registry, spec

pytestmark = pytest.mark.usefixtures("own_run")


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
