"""Relaxing zone → region: waiting pods get in, running pods notice nothing, no binding is made again."""

from itertools import dropwhile

import pytest

from pvaffinity.affinity import HOSTNAME, in_region, in_zone
from pvaffinity.conditions import is_running, is_scheduled, is_scheduled_for, is_unschedulable_because
from pvaffinity.judging import NotJudgedError
from pvaffinity.outcomes import IMMUTABLE

pytestmark = [pytest.mark.behaviour("relaxing"), pytest.mark.cluster("gate-on")]
LOOKS_AGAIN = pytest.mark.alone  # else another test's volume might be what makes the scheduler look again
ITSELF = "that the waiting pod gets in shows that the scheduler has seen it"


@pytest.fixture
def relax(move, places):
    """Update a volume's affinity to the whole region; where there is none, that is found out before any wait."""
    region = in_region(places.region)
    return lambda vol: move(vol, region)


@LOOKS_AGAIN
def test_a_waiting_pod_is_scheduled_in_the_other_zone(cluster, volume, pod, until, send, places):
    """A pod pinned to another zone of the region starts there once the volume is regional, without being re-created."""
    vol = volume(affinity=in_zone(places.home))
    waiting = pod(vol, zone=places.other)
    until(waiting, is_unschedulable_because())

    send(vol, in_region(places.region), why=ITSELF)

    until(waiting, is_scheduled)
    running = until(waiting, cluster.running_on(zone=places.other))
    assert running["metadata"]["uid"] == waiting.uid
    assert vol.changes() == {"spec.nodeAffinity"}


@LOOKS_AGAIN
def test_a_pod_that_no_node_could_take_is_scheduled_within_the_region(cluster, volume, pod, until, send, places):
    """A volume of a zone without nodes strands its pod; made regional, the pod starts on a node of the region."""
    vol = volume(affinity=in_zone(places.nowhere))
    waiting = pod(vol)
    until(waiting, is_unschedulable_because())

    send(vol, in_region(places.region), why=ITSELF)

    in_the_region = cluster.running_on(*cluster.topology.matching(in_region(places.region)))
    until(waiting, is_scheduled_for(in_the_region))
    until(waiting, in_the_region)
    assert vol.changes() == {"spec.nodeAffinity"}


def test_pods_outside_the_region_stay_refused(volume, pod, until, never, relax, places):
    """Relaxing to one region lets in neither a pod of another region nor one on a node without topology labels."""
    vol = volume(affinity=in_zone(places.nowhere))
    abroad = pod(vol, zone=places.abroad)
    on_bare = pod(vol, labels={HOSTNAME: places.bare.labels[HOSTNAME]})
    for waiting in (abroad, on_bare):
        until(waiting, is_unschedulable_because())

    relax(vol)

    until(pod(vol, zone=places.other), is_running)
    until(pod(vol, zone=places.abroad), is_unschedulable_because())
    for waiting in (abroad, on_bare):
        never(waiting, is_scheduled)


def test_a_running_pod_notices_nothing(cluster, volume, pod, until, unaffected, relax, places):
    """A running pod keeps UID, node, start time, container and restart count, and stays Running, over the update."""
    vol = volume(affinity=in_zone(places.home))
    running = pod(vol)
    before = until(running, cluster.running_on(zone=places.home))

    relax(vol)

    until(pod(vol, zone=places.other), is_running)  # a kubelet has worked with the new affinity, too
    unaffected(running, before)


def test_volume_and_claim_stay_bound_to_each_other(cluster, volume, pod, until, relax, timeline, places):
    """PV and claim stay Bound with their UIDs and references, and are never seen in any other phase."""
    vol = volume(affinity=in_zone(places.home))
    until(pod(vol), cluster.running_on(zone=places.home))

    relax(vol)

    until(pod(vol, zone=places.other), is_running)
    assert vol.changes() == {"spec.nodeAffinity"}
    pv, claim = vol.read(), vol.claim.read()
    assert (pv["status"].get("phase"), claim["status"].get("phase")) == ("Bound", "Bound")
    assert pv["spec"].get("claimRef", {}).get("uid") == claim["metadata"]["uid"] == vol.claim.uid
    assert pv["metadata"]["uid"] == vol.uid
    for ref in (vol.ref, vol.claim.ref):
        seen = [entry for entry in timeline.entries if (entry.kind, entry.name) == (ref.kind, ref.name)]
        since_bound = list(dropwhile(lambda entry: not entry.text.startswith("Bound"), seen))
        others = [entry.text for entry in since_bound if not entry.text.startswith("Bound")]
        assert not others, f"{ref} was Bound, and then not: {others}"
        if not since_bound or timeline.interrupted(ref.kind, since_bound[0].at):
            raise NotJudgedError(f"{ref} was not watched without a gap since it was Bound")


@LOOKS_AGAIN
def test_a_pod_of_two_volumes_needs_both(cluster, volume, pod, until, send, places):
    """A pod of two volumes in different zones starts only where both allow it: each affinity is one more condition."""
    first, second = volume(affinity=in_zone(places.home)), volume(affinity=in_zone(places.other))
    both = pod(first, second)
    until(both, is_unschedulable_because())

    send(first, in_region(places.region), why=ITSELF)

    there = cluster.running_on(zone=places.other)
    until(both, is_scheduled_for(there))
    until(both, there)
    assert second.changes() == set()


@LOOKS_AGAIN
def test_a_removed_affinity_allows_every_node(cluster, volume, pod, until, send, places):
    """Clearing the affinity lets a pod start on a node without any topology label."""
    vol = volume(affinity=in_zone(places.nowhere))
    waiting = pod(vol, labels={HOSTNAME: places.bare.labels[HOSTNAME]})
    until(waiting, is_unschedulable_because())

    send(vol, None, why=ITSELF)

    until(waiting, is_scheduled)
    until(waiting, cluster.running_on(places.bare))


@pytest.mark.cluster("gate-off")
def test_with_the_gate_off_the_waiting_pod_keeps_waiting(cluster, volume, pod, until, never, change, places):
    """With the gate off the same update is refused, and the pod stays unschedulable."""
    vol = volume(affinity=in_zone(places.home))
    waiting = pod(vol, zone=places.other)
    until(waiting, is_unschedulable_because())

    assert change(vol, in_region(places.region)) == IMMUTABLE

    until(pod(vol), cluster.running_on(zone=places.home))
    never(waiting, is_scheduled)
