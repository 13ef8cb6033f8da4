"""The tightening race, forced: we bind a pod to a node its volume has lost, as a scheduler with a stale cache would.

The kubelet must not run it, must say why, and the pod must recover once the cause is gone
(k8s.io/kubernetes pkg/volume/util/operationexecutor/operation_generator.go, checkNodeAffinity).
"""

import secrets

import pytest

from pvaffinity.affinity import in_zone, where
from pvaffinity.api import MERGE_PATCH
from pvaffinity.conditions import (
    is_gone,
    is_refused_by_kubelet,
    is_rejected,
    is_running,
    is_waiting_to_start,
)
from pvaffinity.objects import Ref
from pvaffinity.waiting import WaitTimeout

pytestmark = [pytest.mark.behaviour("race"), pytest.mark.cluster("gate-on")]
BY_HAND = "we bind the pod; its kubelet reads the volume from the API server when it mounts it"


@pytest.fixture
def bind(cluster, pod, timeline):
    """Create a pod that no scheduler looks at, and bind it to a node ourselves."""

    def create(vol, node):
        made = pod(vol, schedulerName="pvaffinity.dev/none")
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": made.ref.name, "namespace": made.ref.namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node.name},
        }
        cluster.admin.request("POST", f"{made.ref.path}/binding", body)
        timeline.mark(f"{made.ref} bound to {node.name} by hand")
        return made

    return create


@pytest.fixture
def misplaced(cluster, volume, move, bind, places):
    """A volume tightened from one zone to another, and a pod bound to a node of the zone it has lost."""
    lost = cluster.topology.where(zone=places.home)[0]
    vol = volume(affinity=in_zone(places.home))
    move(vol, in_zone(places.other))
    return vol, bind(vol, lost)


@pytest.fixture
def strand(misplaced, until):
    """What makes the same in the test itself, once the kubelet has refused to mount the volume."""

    def see():
        until(misplaced[1], is_refused_by_kubelet())
        return misplaced

    return see


@pytest.fixture
def stranded(strand):
    """The same as a part of the set-up: without it, nothing can be said of a known gap."""
    return strand()


def test_the_kubelet_does_not_run_it_and_says_why(misplaced, until, unaffected):
    """The pod stays Pending with its container waiting in ContainerCreating, and has a FailedMount event."""
    _, made = misplaced
    until(made, is_refused_by_kubelet())
    before = until(made, is_waiting_to_start)
    unaffected(made, before)


@pytest.mark.known_gap("kubernetes/kubernetes#140595: the kubelet does not reject such a pod yet (planned by KEP-5381)")
@pytest.mark.xfail(
    reason="the kubelet does not reject a pod on PV node affinity in any release yet", raises=WaitTimeout, strict=True
)
def test_the_kubelet_rejects_it(stranded, until):
    """The kubelet fails the pod with reason VolumeNodeAffinity, so that its controller makes another one."""
    _, made = stranded
    until(made, is_rejected)


def test_a_recreated_pod_runs_where_the_volume_is(cluster, strand, pod, until, places):
    """Deleted and created again, the pod is scheduled to the volume's zone and runs within seconds."""
    vol, made = strand()
    cluster.admin.delete(made.ref)
    until(made, is_gone, "recover-quick")

    until(pod(vol), cluster.running_on(zone=places.other), "recover-quick")


@pytest.mark.requires("node-labels")
def test_it_recovers_when_the_nodes_label_is_restored(cluster, volume, send, bind, until, request):
    """A node that gets the label back takes the stuck pod at the next mount retry, within seconds."""
    key = f"pvaffinity.dev/rack-{secrets.token_hex(4)}"
    node = cluster.topology.schedulable[0]
    ref = Ref("Node", node.name)

    def label(value):
        cluster.admin.patch(ref, {"metadata": {"labels": {key: value}}}, MERGE_PATCH)

    request.addfinalizer(lambda: label(None))
    label("old")
    vol = volume(affinity=where(key, "In", "old"))
    send(vol, where(key, "In", "new"), why=BY_HAND)
    made = bind(vol, node)
    until(made, is_refused_by_kubelet())

    label("new")

    recovered = until(made, is_running, "recover-quick")
    assert recovered["metadata"]["uid"] == made.uid


@pytest.mark.slow
def test_it_recovers_when_the_affinity_is_relaxed_again(strand, send, until, places):
    """The stuck pod runs once its node is allowed again; the kubelet re-reads the volume only every 2 min 3 s."""
    vol, made = strand()
    send(vol, in_zone(places.home, places.other), why=BY_HAND)

    recovered = until(made, is_running, "recover-slow")
    assert recovered["metadata"]["uid"] == made.uid
