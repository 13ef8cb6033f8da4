"""The judge: one history for every way a race can end, and for every way it can be worthless."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pvaffinity.affinity import in_region, in_zone
from pvaffinity.verdicts import Binding, Fate, History, Verdict, Warned, Write, judge

MS = 1_000_000
REFUSED = Warned("FailedMount", 'MountVolume.NodeAffinity check failed for volume "v" : no matching NodeSelectorTerms')
RUNNING = Fate(phase="Running", ran=True)
CREATING = Fate(phase="Pending")

AFTER_UPDATE = History(
    name="round",
    aimed_ms=2,
    update=Write(0, 5 * MS, 100),
    creation=Write(7 * MS, 10 * MS, 101),
    before=in_zone("b").to_dict(),
    after=in_zone("c").to_dict(),
    stored=in_zone("c").to_dict(),
    nodes={"old": {"topology.kubernetes.io/zone": "b"}, "new": {"topology.kubernetes.io/zone": "c"}, "bare": {}},
    binding=Binding("new", 103),
    fate=RUNNING,
)
"""Created after the update, bound to the new node, running."""

BEFORE_UPDATE = replace(AFTER_UPDATE, update=Write(20 * MS, 25 * MS, 110), binding=Binding("old", 103))
"""Created and bound to the old node before the update, running."""


def verdict(history: History, **changes: object) -> Verdict:
    return judge(replace(history, **changes)).verdict  # type: ignore[arg-type]


def test_running_where_it_was_allowed_is_kept():
    """A pod is kept on the new node if bound after the update, and on the old one if bound before it."""
    assert verdict(AFTER_UPDATE) == Verdict.KEPT
    assert verdict(BEFORE_UPDATE) == Verdict.KEPT


def test_running_on_a_node_lost_before_the_binding_has_escaped():
    """A pod that runs on the old node though the update is older than its binding breaks the guarantee."""
    assert verdict(AFTER_UPDATE, binding=Binding("old", 103)) == Verdict.ESCAPED
    assert verdict(BEFORE_UPDATE, binding=Binding("old", 111)) == Verdict.ESCAPED


def test_having_run_is_enough_to_escape():
    """That the pod is dead or deleted by now does not undo that it ran."""
    ended = Fate(phase="Failed", ran=True, deleted=True)
    assert verdict(AFTER_UPDATE, binding=Binding("old", 103), fate=ended) == Verdict.ESCAPED


def test_running_where_it_was_never_allowed_has_escaped():
    """A node that neither affinity allows is no better than a lost one."""
    assert verdict(AFTER_UPDATE, binding=Binding("bare", 103)) == Verdict.ESCAPED


def test_binding_at_the_same_moment_is_decided_by_version_not_by_clock():
    """One revision more or less than the update's is the difference between kept and escaped."""
    assert verdict(BEFORE_UPDATE, binding=Binding("old", 109)) == Verdict.KEPT
    assert verdict(BEFORE_UPDATE, binding=Binding("old", 111)) == Verdict.ESCAPED


@pytest.mark.parametrize("bound_at", [103, 111, None])
def test_refused_by_the_kubelet_on_a_lost_node_is_stranded(bound_at):
    """Bound to the old node, not running, and the kubelet's event says why; when it was bound does not matter."""
    stuck = {"binding": Binding("old", bound_at), "fate": CREATING, "events": (REFUSED,)}
    assert verdict(BEFORE_UPDATE, **stuck) == Verdict.STRANDED


def test_rejected_by_a_later_kubelet_is_stranded():
    """A kubelet that fails the pod instead of retrying the mount leaves it as stranded."""
    failed = Fate(phase="Failed", reason="VolumeNodeAffinity")
    assert verdict(AFTER_UPDATE, binding=Binding("old", 103), fate=failed) == Verdict.STRANDED


def test_unschedulable_is_pending():
    """No binding and the scheduler's word for it."""
    assert verdict(AFTER_UPDATE, binding=None, fate=Fate("Pending", unschedulable=True)) == Verdict.PENDING


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"update": Write(0)}, id="update never acknowledged"),
        pytest.param({"creation": Write(7 * MS)}, id="creation never acknowledged"),
        pytest.param({"nodes_unchanged": False}, id="labels changed"),
        pytest.param({"stored": in_zone("b").to_dict()}, id="affinity changed by others"),
        pytest.param({"stored": None}, id="volume gone"),
        pytest.param({"creation": Write(7 * MS, 10 * MS, 99)}, id="versions contradict the clock"),
        pytest.param(
            {"creation": Write(-20 * MS, -10 * MS, 150)}, id="versions contradict the clock the other way round"
        ),
        pytest.param({"binding": Binding("else", 103)}, id="unknown node"),
        pytest.param({"binding": None, "fate": CREATING}, id="scheduler silent"),
        pytest.param({"binding": None, "fate": replace(RUNNING, unschedulable=True)}, id="runs without a binding"),
        pytest.param({"binding": None, "fate": Fate("Pending", deleted=True)}, id="deleted unbound"),
        pytest.param({"fate": CREATING}, id="not yet running where it may"),
        pytest.param({"binding": Binding("old", 103), "fate": CREATING}, id="not running, nobody says why"),
        pytest.param(
            {"binding": Binding("old", 103), "fate": CREATING, "events": (Warned("FailedMount", "no such path"),)},
            id="not running for another reason",
        ),
        pytest.param(
            {"binding": Binding("old", 103), "fate": Fate("Pending", deleted=True), "events": (REFUSED,)},
            id="deleted by somebody",
        ),
    ],
)
def test_what_cannot_be_known_is_unknown(changes):
    """Every hole in a history makes it unknown, however well the pod fared."""
    assert verdict(AFTER_UPDATE, **changes) == Verdict.UNKNOWN


OPEN = [
    pytest.param({"binding": None, "fate": CREATING}, id="scheduler silent"),
    pytest.param({"fate": CREATING}, id="not yet running where it may"),
    pytest.param({"binding": Binding("old", 103), "fate": CREATING}, id="not running, nobody says why"),
]


@pytest.mark.parametrize("changes", OPEN)
def test_an_end_that_was_not_awaited_accuses_nobody(changes):
    """A round given up before its end does not count; one that was watched to its end and says nothing does."""
    assert judge(replace(AFTER_UPDATE, **changes)).counts
    given_up = judge(replace(AFTER_UPDATE, **changes, settled=False))
    assert (given_up.verdict, given_up.counts) == (Verdict.UNKNOWN, False)


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes_unchanged": False},
        {"stored": None},
        {"creation": Write(7 * MS, 10 * MS, 99)},
        {"binding": Binding("else", 103)},
        {"update": Write(20 * MS, 25 * MS, 110), "binding": Binding("old")},
        {"fate": Fate("Pending", deleted=True)},
    ],
)
def test_impatience_excuses_no_other_doubt(changes):
    """What is unknown for another reason counts, also where the end was not awaited."""
    found = judge(replace(AFTER_UPDATE, **changes, settled=False))
    assert (found.verdict, found.counts) == (Verdict.UNKNOWN, True)


@pytest.mark.parametrize("lost", [{"update": Write(0)}, {"creation": Write(7 * MS)}])
def test_a_lost_answer_accuses_nobody(lost):
    """A round of ours that got no answer does not count, unless the volume was changed by somebody else."""
    found = judge(replace(AFTER_UPDATE, **lost))
    assert (found.verdict, found.counts) == (Verdict.UNKNOWN, False)
    assert judge(replace(AFTER_UPDATE, **lost, stored=in_zone("d").to_dict())).counts


def test_an_update_without_an_answer_may_not_have_been_stored():
    """Then the volume has its old affinity, and nobody has meddled."""
    assert not judge(replace(AFTER_UPDATE, update=Write(0), stored=AFTER_UPDATE.before)).counts


def test_a_lost_answer_hides_no_escape():
    """An escape that the versions prove without the answer, or a node that neither affinity allows, is one."""
    assert verdict(AFTER_UPDATE, creation=Write(7 * MS), binding=Binding("old", 103)) == Verdict.ESCAPED
    assert verdict(AFTER_UPDATE, update=Write(0), binding=Binding("bare", 103)) == Verdict.ESCAPED


def test_a_missed_binding_version_is_bounded_by_the_pods_creation():
    """A binding is younger than its pod: a pod created after the update was bound after it, else nothing is known."""
    assert verdict(AFTER_UPDATE, binding=Binding("old")) == Verdict.ESCAPED
    assert verdict(BEFORE_UPDATE, binding=Binding("old")) == Verdict.UNKNOWN


def test_order_does_not_matter_where_both_affinities_agree():
    """A node that both affinities allow keeps its pod, whatever the order."""
    widened = replace(BEFORE_UPDATE, after=in_region("r").to_dict(), stored=in_region("r").to_dict())
    labels = {"topology.kubernetes.io/zone": "b", "topology.kubernetes.io/region": "r"}
    assert verdict(widened, nodes={"old": labels}, binding=Binding("old")) == Verdict.KEPT


def test_offset_is_creation_sent_minus_update_acknowledged():
    """The offset is measured in milliseconds from the acknowledgement; without one there is none."""
    assert AFTER_UPDATE.offset_ms == 2.0
    assert replace(AFTER_UPDATE, update=Write(0)).offset_ms is None


def test_history_survives_json():
    """A history read back from JSON is the same value."""
    history = replace(AFTER_UPDATE, events=(REFUSED,))
    assert History.from_dict(json.loads(json.dumps(history.to_dict()))) == history


@pytest.mark.parametrize("line", (Path(__file__).parent / "data/races/handmade.jsonl").read_text().splitlines()[1:])
def test_saved_histories_get_the_verdict_they_are_named_after(line):
    """Histories on file, whose names begin with the verdict they deserve, are judged so by every later version."""
    history = History.from_dict(json.loads(line))
    assert judge(history).verdict == history.name.split(":")[0], judge(history)
