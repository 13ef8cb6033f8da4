"""The gate turned off again, or on only later, on a live cluster (KEP-5381, "Feature Enablement and Rollback").

Only the API server is started anew. All other components keep the setting they have, so that each check also shows
that theirs is of no account.
"""

import pytest

from pvaffinity.affinity import in_region, in_zone, where, with_ga_keys
from pvaffinity.api import MERGE_PATCH
from pvaffinity.capabilities import gate_state
from pvaffinity.clusterconfig import GATE
from pvaffinity.conditions import is_affected_since, is_unschedulable_because
from pvaffinity.outcomes import IMMUTABLE, Accepted, attempt

pytestmark = [
    pytest.mark.behaviour("rollback"),
    pytest.mark.cluster("gate-on"),
    pytest.mark.requires("component-flags"),
    pytest.mark.alone,
]

NO_POD = "no pod uses it"
ON, OFF = {"feature-gates": f"{GATE}=true"}, {"feature-gates": f"{GATE}=false"}


def test_a_rollback_keeps_what_was_changed_and_ends_the_changing(
    cluster, components, volume, pod, until, never, unaffected, change, move, send, places
):
    """Off again, changed values stay, pods live by them and only what is always legal is accepted; on again, all is."""
    relaxed, moved = volume(affinity=in_zone(places.home)), volume(affinity=in_zone(places.home))
    old = volume(affinity=_beta(places.home))
    running = pod(moved)
    before = until(running, cluster.running_on(zone=places.home))
    move(relaxed, in_region(places.region))
    move(moved, in_zone(places.other))
    move(old, _beta(places.other))

    # One rollback for all of it: whoever watches the API server takes the longer to come back the oftener it goes away.
    with components.running_with("kube-apiserver", OFF):
        assert gate_state(cluster.admin) == "off"
        assert relaxed.affinity() == in_region(places.region)
        for affinity in (in_zone(places.home), in_zone(places.other)):  # not even back to what it was
            assert change(relaxed, affinity) == IMMUTABLE
        send(relaxed, in_region(places.region), why=NO_POD)
        label = {"metadata": {"labels": {"pvaffinity.dev/rolled-back": "yes"}}}
        assert attempt(lambda: cluster.admin.patch(relaxed.pv, label, MERGE_PATCH)) == Accepted({})
        assert change(old, with_ga_keys(_beta(places.home))) == IMMUTABLE
        send(old, with_ga_keys(_beta(places.other)), why=NO_POD)
        assert relaxed.changes() == {"spec.nodeAffinity", "metadata.labels"}
        assert relaxed.affinity() == in_region(places.region)

        until(pod(moved), cluster.running_on(zone=places.other))
        until(pod(moved, zone=places.home), is_unschedulable_because())
        unaffected(running, before)

    never(running, is_affected_since(before))
    move(relaxed, in_zone(places.other))
    assert relaxed.affinity() == in_zone(places.other)


def _beta(zone):
    """A volume's affinity as it was written before the labels of zones became generally available."""
    return where("failure-domain.beta.kubernetes.io/zone", "In", zone)


@pytest.mark.cluster("gate-off", knows_gate=True)
def test_turned_on_later_the_gate_works_for_volumes_that_were_there(
    cluster, components, volume, pod, until, change, send, places
):
    """A volume made without the gate can be changed once it is on, and the pod that waits for it is let in."""
    vol = volume(affinity=in_zone(places.home))
    waiting = pod(vol, zone=places.other)
    until(waiting, is_unschedulable_because())
    assert change(vol, in_region(places.region)) == IMMUTABLE

    with components.running_with("kube-apiserver", ON):
        send(vol, in_region(places.region), why="that the waiting pod gets in shows that it was seen")
        running = until(waiting, cluster.running_on(zone=places.other))
        assert running["metadata"]["uid"] == waiting.uid

    assert vol.changes() == {"spec.nodeAffinity"}
    assert change(vol, in_zone(places.home)) == IMMUTABLE
