"""The logs of a cluster on which something failed are saved before it goes."""

import errno

import pytest

from pvaffinity.errors import UserError
from selftests.recording import registry, spec

pytestmark = pytest.mark.usefixtures("own_run")


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
