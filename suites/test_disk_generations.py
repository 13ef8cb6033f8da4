"""Swapping disk generations: gen1 → gen2 moves new pods to gen2 nodes and leaves the running one alone."""

import pytest

from pvaffinity.affinity import disk_key, on_disk
from pvaffinity.conditions import (
    is_ready_statefulset,
    is_scheduled,
    is_unschedulable_because,
    replacing,
)
from pvaffinity.manifests import stateful_set
from pvaffinity.objects import Ref
from pvaffinity.patches import Verb

pytestmark = [pytest.mark.behaviour("generations"), pytest.mark.cluster("gate-on")]


@pytest.fixture
def upgrade(move, places):
    """Update a volume's affinity from the first disk generation to the second, by strategic merge patch."""
    return lambda vol: move(vol, on_disk(places.gen2), Verb.STRATEGIC_MERGE_PATCH)


def test_new_pods_start_on_gen2_nodes_only(cluster, volume, pod, until, never, upgrade, places):
    """After the swap a new pod starts on a gen2 node, and one pinned to gen1 nodes is refused."""
    vol = volume(affinity=on_disk(places.gen1))
    upgrade(vol)

    until(pod(vol), cluster.running_on(disk=places.gen2))
    pinned = pod(vol, labels={disk_key(places.gen1): "available"})
    until(pinned, is_unschedulable_because())
    never(pinned, is_scheduled)
    assert vol.changes() == {"spec.nodeAffinity"}


@pytest.mark.alone  # else another test's volume might be what makes the scheduler look again
def test_a_pod_waiting_for_gen2_gets_in(cluster, volume, pod, until, send, places):
    """A pod that already waited on gen2 nodes starts once the volume has moved, without being re-created."""
    vol = volume(affinity=on_disk(places.gen1))
    waiting = pod(vol, labels={disk_key(places.gen2): "available"})
    until(waiting, is_unschedulable_because())

    send(vol, on_disk(places.gen2), Verb.STRATEGIC_MERGE_PATCH, why="that the pod gets in shows that it was seen")

    until(waiting, is_scheduled)
    started = until(waiting, cluster.running_on(disk=places.gen2))
    assert started["metadata"]["uid"] == waiting.uid


def test_the_running_pod_on_gen1_is_left_alone(cluster, volume, pod, until, unaffected, upgrade, places):
    """A pod running on gen1 when its volume moves to gen2 stays: same UID, node and containers, and still Running."""
    vol = volume(affinity=on_disk(places.gen1))
    running = pod(vol)
    before = until(running, cluster.running_on(disk=places.gen1))

    upgrade(vol)

    until(pod(vol), cluster.running_on(disk=places.gen2))
    unaffected(running, before)


def test_a_stateful_sets_replacement_pod_moves_to_gen2(cluster, workspace, volume, until, upgrade, places):
    """The pod of a StatefulSet, deleted after the swap, comes back on a gen2 node with the same claim and volume."""
    vol = volume(affinity=on_disk(places.gen1))
    body = stateful_set(Ref("StatefulSet", workspace.name("db"), workspace.namespace), [vol.claim.ref.name])
    owner = workspace.create(body)
    until(owner, is_ready_statefulset(1))
    replica = Ref("Pod", f"{owner.ref.name}-0", workspace.namespace)
    first = cluster.admin.get(replica)
    assert first["spec"]["nodeName"] in {node.name for node in cluster.topology.where(disk=places.gen1)}

    upgrade(vol)
    cluster.admin.delete(replica)

    second = until(
        Replica(cluster.admin, replica), replacing(first["metadata"]["uid"], cluster.running_on(disk=places.gen2))
    )
    assert second["spec"].get("volumes") == first["spec"].get("volumes")
    assert vol.changes() == {"spec.nodeAffinity"}


class Replica:
    """A pod that somebody else creates, to wait for."""

    def __init__(self, api, ref):
        self.api, self.ref = api, ref
