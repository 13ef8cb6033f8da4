"""Every change of a node affinity, every way to write it, every phase and kind of volume: refused or accepted.

What is expected stands in :mod:`pvaffinity.expectations`. A change is tried on eight volumes at once: hostPath, local,
csi and nfs, each Available and Bound.
"""

import pytest

from pvaffinity.affinity import Affinity
from pvaffinity.expectations import CHANGES, INVALID_SHAPES, Change, expected, expected_shape
from pvaffinity.manifests import SOURCES
from pvaffinity.outcomes import Accepted, Refused, attempt
from pvaffinity.patches import Updater, Verb, hand_over

pytestmark = pytest.mark.behaviour("immutability")

needs_kubectl = {Verb.KUBECTL: pytest.mark.requires("kubectl")}
every_verb = pytest.mark.parametrize(
    "verb", [pytest.param(verb, marks=needs_kubectl.get(verb, ())) for verb in Verb], ids=str
)
both_gates = pytest.mark.cluster("gate-off", "gate-on")


def named(changes):
    """Parametrize over changes or shapes, by their names."""
    return pytest.mark.parametrize("change", changes, ids=[c.name for c in changes])


@pytest.fixture
def volumes(borrow):
    """One volume of every source and phase, in the state before a change; half as many for kubectl, a process each."""

    def get(change: Change, verb: Verb, sources=tuple(SOURCES)):
        both = [(source, phase) for source in sources for phase in ("Available", "Bound")]
        if verb is Verb.KUBECTL:
            both = both[0::4] + both[3::4]  # every source once, the phases in turn
        lent = borrow((change.before, source, phase) for source, phase in both if change.applies_to(source))
        return {f"{source} {phase}": vol for (_, source, phase), vol in lent}

    return get


@pytest.fixture
def updater(cluster):
    """The administrator's six ways to write a change."""
    return Updater(cluster.admin, cluster.kubectl)


def written(affinity: Affinity | None):
    """The value to write for an affinity."""
    return affinity.to_dict() if affinity is not None else None


@pytest.mark.cluster("gate-off")
@every_verb
@named([c for c in CHANGES if c.gated])
def test_with_the_gate_off_a_change_is_refused(volumes, updater, change, verb):
    """With the gate off the change is 422 Invalid, naming nodeAffinity as its cause, and the object is untouched."""
    wrong = []
    for what, vol in volumes(change, verb).items():
        outcome = updater.update(vol.pv, written(change.after), verb)
        want = expected(change, gate=False, source=what.split()[0])
        after = vol.read()
        if outcome != want:
            wrong.append(f"{what}: {outcome}, expected: {want}")
        elif vol.changes(after) or _moved(verb, change, vol.settled[0], after):
            wrong.append(f"{what}: refused, and yet it changed: {sorted(vol.changes(after))} or its resourceVersion")
    assert not wrong, "\n".join(wrong)


def _moved(verb: Verb, change: Change, before, after) -> bool:
    """Whether the resourceVersion moved; clearing by apply first takes the field over, which is a write of its own."""
    handed_over = verb is Verb.SERVER_SIDE_APPLY and change.after is None
    return not handed_over and before["metadata"]["resourceVersion"] != after["metadata"]["resourceVersion"]


@pytest.mark.cluster("gate-on")
@every_verb
@named([c for c in CHANGES if c.gated])
def test_with_the_gate_on_a_change_is_accepted(volumes, updater, change, verb):
    """With the gate on the change is stored as written, and nothing else of volume and claim changes."""
    wrong = []
    for what, vol in volumes(change, verb).items():
        outcome = updater.update(vol.pv, written(change.after), verb)
        want = expected(change, gate=True, source=what.split()[0])
        if outcome != want:
            wrong.append(f"{what}: {outcome}, expected: {want}")
        elif isinstance(outcome, Accepted):
            now = vol.read()
            stored, changed = vol.affinity(now), vol.changes(now)
            if stored != change.after or changed != {"spec.nodeAffinity"}:
                wrong.append(f"{what}: stored {stored}, changed {sorted(changed)}")
    assert not wrong, "\n".join(wrong)


@both_gates
@every_verb
@named([c for c in CHANGES if not c.gated])
def test_some_changes_are_legal_with_the_gate_on_or_off(volumes, updater, change, verb):
    """A first affinity, no change at all, and the five renames of beta labels to their GA keys are always accepted."""
    wrong = []
    for what, vol in volumes(change, verb).items():
        outcome = updater.update(vol.pv, written(change.after), verb)
        now = vol.read()
        if outcome != Accepted({}) or vol.affinity(now) != change.after:
            wrong.append(f"{what}: {outcome}, stored {vol.affinity(now)}")
        elif not vol.changes(now) <= {"spec.nodeAffinity"}:
            wrong.append(f"{what}: accepted, but it changed {sorted(vol.changes(now))}")
    assert not wrong, "\n".join(wrong)


@both_gates
@every_verb
@named([c for c in CHANGES if c.name in ("zone-to-region", "clear", "set-where-unset", "no-change")])
def test_a_dry_run_gives_the_same_verdict_and_stores_nothing(cluster, volumes, updater, change, verb):
    """A server-side dry run answers exactly as the update would, and the stored object keeps its resourceVersion."""
    wrong = []
    for what, vol in volumes(change, verb).items():
        if verb is Verb.SERVER_SIDE_APPLY and change.after is None:
            hand_over(cluster.admin, vol.pv)
        before = vol.read() if verb is Verb.SERVER_SIDE_APPLY else vol.settled[0]
        outcome = updater.update(vol.pv, written(change.after), verb, dry_run=True)
        want = expected(change, gate=cluster.gate_on, source=what.split()[0])
        if outcome != want:
            wrong.append(f"{what}: {outcome}, expected: {want}")
        elif isinstance(outcome, Accepted) and vol.affinity(outcome.object) != change.after:
            wrong.append(f"{what}: the dry run answers {vol.affinity(outcome.object)}")
        elif vol.read() != before:
            wrong.append(f"{what}: the dry run was stored")
    assert not wrong, "\n".join(wrong)


@both_gates
@pytest.mark.parametrize("verb", [Verb.PUT, Verb.JSON_PATCH, Verb.STRATEGIC_MERGE_PATCH], ids=str)
@pytest.mark.parametrize("shape", INVALID_SHAPES, ids=[s.name for s in INVALID_SHAPES])
def test_an_invalid_shape_is_refused_whatever_the_gate(cluster, volumes, updater, shape, verb):
    """Validation names the same field and cause with the gate on or off; with it off, immutability comes on top."""
    wrong = []
    want = expected_shape(shape, gate=cluster.gate_on)
    for what, vol in volumes(CHANGES[0], verb, sources=("hostPath", "csi")).items():
        outcome = updater.update(vol.pv, shape.value, verb)
        if outcome != want:
            wrong.append(f"{what}: {outcome}, expected: {want}")
        elif vol.changes():
            wrong.append(f"{what}: refused, and yet it changed {sorted(vol.changes())}")
    assert not wrong, "\n".join(wrong)


@both_gates
def test_a_change_sent_to_the_status_subresource_is_dropped(cluster, volume):
    """An affinity in an update of /status is answered with 200 and not stored, with the gate on or off."""
    change = CHANGES[0]
    vol = volume(change.before, bound=False)
    body = {"spec": {"nodeAffinity": written(change.after)}, "status": {"message": "written"}}
    cluster.admin.patch(vol.pv, body, subresource="status")
    assert vol.affinity() == change.before
    assert vol.read().get("status", {}).get("message") == "written"


@both_gates
def test_a_stale_resource_version_is_a_conflict_not_a_refusal(cluster, volume):
    """A PUT with an outdated resourceVersion is 409 Conflict, which must not be taken for immutability."""
    vol = volume(CHANGES[0].before, bound=False)
    stale = vol.read()
    vol.touch()
    stale["spec"]["nodeAffinity"] = written(CHANGES[0].after)
    outcome = attempt(lambda: cluster.admin.replace(stale))
    assert isinstance(outcome, Refused), f"{outcome}, expected: 409 Conflict"
    assert (outcome.code, outcome.reason) == (409, "Conflict")
    assert vol.affinity() == CHANGES[0].before
