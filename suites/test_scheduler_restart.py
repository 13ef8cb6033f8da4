"""A volume changed while no scheduler runs: the next one reads the affinity as it is, not as any scheduler knew it."""

import pytest

from pvaffinity.affinity import in_region, in_zone
from pvaffinity.conditions import is_scheduled, is_unschedulable_because

pytestmark = [
    pytest.mark.behaviour("restart"),
    pytest.mark.cluster("gate-on"),
    pytest.mark.requires("component-flags"),
    pytest.mark.alone,
]
NOBODY = "no scheduler runs"


def test_a_starting_scheduler_heeds_a_tightened_affinity(cluster, components, volume, pod, until, never, send, places):
    """Pods made while no scheduler runs are placed by the tightened affinity, and refused by it, when one starts."""
    vol = volume(affinity=in_region(places.region))
    with components.stopped("kube-scheduler"):
        send(vol, in_zone(places.other), why=NOBODY)
        anywhere, at_home = pod(vol), pod(vol, zone=places.home)
        never(anywhere, is_scheduled)

    until(anywhere, cluster.running_on(zone=places.other))
    until(at_home, is_unschedulable_because())
    assert vol.changes() == {"spec.nodeAffinity"}


def test_a_starting_scheduler_lets_in_a_pod_that_its_predecessor_refused(
    cluster, components, volume, pod, until, never, send, places
):
    """A pod refused by one scheduler starts under the next, if the affinity was relaxed while none ran."""
    vol = volume(affinity=in_zone(places.home))
    waiting = pod(vol, zone=places.other)
    until(waiting, is_unschedulable_because())
    with components.stopped("kube-scheduler"):
        send(vol, in_region(places.region), why=NOBODY)
        never(waiting, is_scheduled)

    running = until(waiting, cluster.running_on(zone=places.other))
    assert running["metadata"]["uid"] == waiting.uid
    assert vol.changes() == {"spec.nodeAffinity"}
