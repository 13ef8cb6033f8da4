"""Relaxing zone → region: waiting pods get in, running pods notice nothing, no binding is made again."""

from itertools import dropwhile

import pytest

from pvaffinity import patches
from pvaffinity.affinity import in_region, in_zone
from pvaffinity.conditions import is_running, is_unschedulable_because

pytestmark = [pytest.mark.behaviour("relaxing"), pytest.mark.cluster("gate-on")]

REGION_WIDE = in_region("us-east1")


@pytest.fixture
def relax(cluster, timeline):
    """Update a volume's affinity to the whole region, by merge patch."""

    def update(vol, affinity=REGION_WIDE):
        outcome = patches.update(cluster.admin, vol.pv, affinity.to_dict(), patches.Verb.MERGE_PATCH)
        timeline.mark(f"{vol.pv} → {affinity}: {outcome}")
        assert str(outcome) == "accepted"

    return update


def test_a_waiting_pod_is_scheduled_in_the_other_zone(cluster, volume, pod, until, relax):
    """A pod pinned to another zone of the region starts there once the volume is regional, without being re-created."""
    vol = volume(affinity=in_zone("us-east1-b"))
    waiting = pod(vol, zone="us-east1-c")
    until(waiting, is_unschedulable_because())

    relax(vol)

    running = until(waiting, cluster.running_on(zone="us-east1-c"))
    assert running["metadata"]["uid"] == waiting.uid
    assert vol.changes() == {"spec.nodeAffinity"}


def test_a_pod_that_no_node_could_take_is_scheduled_within_the_region(cluster, volume, pod, until, relax):
    """A volume of a zone without nodes strands its pod; made regional, the pod starts on a node of the region."""
    vol = volume(affinity=in_zone("us-east1-z"))
    waiting = pod(vol)
    until(waiting, is_unschedulable_because())

    relax(vol)

    until(waiting, cluster.running_on(*cluster.topology.matching(REGION_WIDE)))
    assert vol.changes() == {"spec.nodeAffinity"}


def test_pods_outside_the_region_stay_refused(cluster, volume, pod, until, never, relax):
    """Relaxing to one region lets in neither a pod of another region nor one on a node without topology labels."""
    (bare,) = cluster.topology.bare
    vol = volume(affinity=in_zone("us-east1-z"))
    abroad = pod(vol, zone="us-west1-a")
    on_bare = pod(vol, labels={"kubernetes.io/hostname": bare.labels["kubernetes.io/hostname"]})
    inside = pod(vol, zone="us-east1-c")
    for waiting in (abroad, on_bare, inside):
        until(waiting, is_unschedulable_because())

    relax(vol)

    until(inside, is_running)  # the scheduler has seen the new affinity, and has had its chance with the others
    for waiting in (abroad, on_bare):
        never(waiting, is_running)
        until(waiting, is_unschedulable_because())
        assert "nodeName" not in waiting.read()["spec"]


def test_a_running_pod_notices_nothing(cluster, volume, pod, until, relax):
    """A running pod keeps UID, node, start time, container and restart count, and stays Running, over the update."""
    vol = volume(affinity=in_zone("us-east1-b"))
    running = pod(vol)
    before = until(running, is_running)

    relax(vol)

    witness = pod(vol, zone="us-east1-c")
    until(witness, is_running)  # scheduler and a kubelet have both worked with the new affinity
    after = running.read()
    assert identity(after) == identity(before)
    assert after["status"]["phase"] == "Running"


def identity(pod):
    """What a pod would lose if anything had touched it."""
    status = pod["status"]
    return {
        "uid": pod["metadata"]["uid"],
        "node": pod["spec"]["nodeName"],
        "started": status["startTime"],
        "containers": [(c["containerID"], c["restartCount"], c["state"]) for c in status["containerStatuses"]],
    }


def test_volume_and_claim_stay_bound_to_each_other(volume, pod, until, relax, timeline):
    """PV and claim stay Bound with their UIDs and references, and are never seen in any other phase."""
    vol = volume(affinity=in_zone("us-east1-b"))
    until(pod(vol), is_running)

    relax(vol)

    until(pod(vol, zone="us-east1-c"), is_running)
    assert vol.changes() == {"spec.nodeAffinity"}
    pv, claim = vol.read(), vol.claim.read()
    assert (pv["status"]["phase"], claim["status"]["phase"]) == ("Bound", "Bound")
    assert pv["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"] == vol.claim.uid
    assert pv["metadata"]["uid"] == vol.uid
    for kind in ("PersistentVolume", "PersistentVolumeClaim"):
        seen = [entry.text for entry in timeline.entries if entry.kind == kind]
        since_bound = list(dropwhile(lambda text: not text.startswith("Bound"), seen))
        assert since_bound, f"no {kind} was seen"
        assert all(text.startswith("Bound") for text in since_bound), f"{kind}: {seen}"


def test_a_pod_of_two_volumes_needs_both(cluster, volume, pod, until, relax):
    """A pod of two volumes in different zones starts only where both allow it: each affinity is one more condition."""
    first, second = volume(affinity=in_zone("us-east1-b")), volume(affinity=in_zone("us-east1-c"))
    both = pod(first, second)
    until(both, is_unschedulable_because())

    relax(first)

    until(both, cluster.running_on(zone="us-east1-c"))
    assert second.changes() == set()


def test_a_removed_affinity_allows_every_node(cluster, volume, pod, until):
    """Clearing the affinity lets a pod start on a node without any topology label."""
    (bare,) = cluster.topology.bare
    vol = volume(affinity=in_zone("us-east1-z"))
    waiting = pod(vol, labels={"kubernetes.io/hostname": bare.labels["kubernetes.io/hostname"]})
    until(waiting, is_unschedulable_because())

    assert str(patches.update(cluster.admin, vol.pv, None, patches.Verb.MERGE_PATCH)) == "accepted"

    until(waiting, cluster.running_on(bare))


@pytest.mark.cluster("gate-off")
def test_with_the_gate_off_the_waiting_pod_keeps_waiting(cluster, volume, pod, until, never):
    """With the gate off the same update is refused, and the pod stays unschedulable."""
    vol = volume(affinity=in_zone("us-east1-b"))
    waiting = pod(vol, zone="us-east1-c")
    until(waiting, is_unschedulable_because())

    outcome = patches.update(cluster.admin, vol.pv, REGION_WIDE.to_dict(), patches.Verb.MERGE_PATCH)

    assert str(outcome).startswith("refused with 422")
    until(pod(vol), is_running)
    never(waiting, is_running)
