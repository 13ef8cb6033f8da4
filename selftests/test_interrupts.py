"""Ctrl-C and SIGTERM, once and twice, at any moment: one line of ours at the end, exit code 130, nothing left."""

import contextlib
import os
import signal
import time

import pytest

from selftests.pretended import Session
from selftests.test_ending import GOOD
from selftests.test_nothing_lost import appears

SLOW = "def test_slow(cluster):\n    open('test', 'w').close()\n    time.sleep(60)\n"
TAKES_TIME = """
import time
def slowly(what, then):
    def does(*arguments):
        if os.environ["MOMENT"] in (what, "both"):
            open(what, "w").close()
            for _ in range(20):  # as one that polls
                time.sleep(0.1)
        return then(*arguments)
    return does
Maker.create = slowly("creation", Maker.create)

def delete(self, cluster, *_):
    import shutil
    shutil.rmtree(cluster.directory)
    open("deleted", "w").close()
Maker.delete = slowly("deletion", delete)
"""


@pytest.fixture
def session(tmp_path):
    made = Session(tmp_path)
    made.conftest(TAKES_TIME)
    yield made
    made.close()


XDIST, PLAIN = ("-n1",), ()


@pytest.mark.parametrize(
    ("moment", "send", "workers"),
    [
        *((moment, send, XDIST) for moment in ("creation", "test", "deletion") for send in ("group", "group twice")),
        ("creation", "process", XDIST),
        ("creation", "group twice", PLAIN),
        ("test", "SIGTERM", XDIST),
        ("deletion", "process", PLAIN),
        ("deletion", "SIGTERM", PLAIN),
    ],
)
def test_an_interruption_ends_with_one_line(session, moment, send, workers):
    """Whoever is told, and however often: the clusters are deleted, the last line says it, and the code is 130."""
    process = session.start(GOOD if moment == "deletion" else GOOD + SLOW, *workers, MOMENT=moment)
    appears(session.directory / moment)
    number = signal.SIGTERM if send == "SIGTERM" else signal.SIGINT
    for _ in range(2 if send.endswith("twice") else 1):
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if send.startswith("group") else os.kill)(process.pid, number)
        time.sleep(0.5)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 130, said
    assert said.splitlines()[-1] == "interrupted: what the session made is deleted, results so far are in reports/", (
        said
    )
    assert "Traceback" not in said
    assert moment == "creation" or (session.directory / "deleted").exists()
    assert not list((session.run / "clusters").iterdir())
    assert not list((session.run / "sessions").iterdir())


def test_a_second_interruption_during_deletion_does_not_cut_it_short(session):
    """The first stops the tests, the second comes while clusters are deleted: they are deleted all the same."""
    process = session.start(SLOW, "-n1", MOMENT="deletion")
    appears(session.directory / "test")
    os.killpg(process.pid, signal.SIGINT)
    appears(session.directory / "deletion")
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 130, said
    assert (session.directory / "deleted").exists()
    assert "Traceback" not in said
