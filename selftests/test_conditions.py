"""What conditions make of objects."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pvaffinity.affinity import in_zone
from pvaffinity.conditions import (
    Condition,
    describe,
    has_event,
    is_affected_since,
    is_available,
    is_bound,
    is_gone,
    is_ready_statefulset,
    is_refused_by_kubelet,
    is_running,
    is_running_on,
    is_scheduled,
    is_succeeded,
    is_unschedulable,
    is_unschedulable_because,
    is_waiting_to_start,
    replacing,
)
from pvaffinity.objects import Obj

NEWER = (
    "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, "
    "2 node(s) didn't match PersistentVolume's node affinity. preemption: not helpful"
)
OLDER = "0/3 nodes are available: 3 node(s) had volume node affinity conflict."
TAINTED = "0/3 nodes are available: 3 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }."


def pod(node: str | None = None, *, leaving: bool = False, uid: str = "u1", **status: Any) -> Obj:
    metadata = {"name": "p", "uid": uid, **({"deletionTimestamp": "now"} if leaving else {})}
    return {"kind": "Pod", "metadata": metadata, "spec": {"nodeName": node} if node else {}, "status": status}


def containers(*states: str) -> list[Obj]:
    return [{"name": f"c{i}", "ready": True, "state": {state: {}}} for i, state in enumerate(states)]


def held(*reasons: str) -> Obj:
    waiting = [{"name": f"c{i}", "state": {"waiting": {"reason": reason}}} for i, reason in enumerate(reasons)]
    return pod("n", phase="Pending", containerStatuses=waiting)


def refused(message: str, reason: str = "Unschedulable", **more: Any) -> Obj:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return pod(phase="Pending", conditions=[{"type": "Ready", "status": "False"}, condition], **more)


def volume(phase: str, affinity: Any = None) -> Obj:
    spec = {} if affinity is None else {"nodeAffinity": affinity.to_dict()}
    return {"kind": "PersistentVolume", "metadata": {"uid": "v"}, "spec": spec, "status": {"phase": phase}}


def statefulset(generation: int, **status: Any) -> Obj:
    return {"kind": "StatefulSet", "metadata": {"uid": "s", "generation": generation}, "spec": {}, "status": status}


RUNNING = pod("node-1", phase="Running", containerStatuses=containers("running", "running"))
ON_1 = is_running_on(["node-1"], "in us-east1-b")


@pytest.mark.parametrize(
    ("condition", "obj", "state"),
    [
        (is_bound, None, "not yet"),
        (is_bound, volume("Available"), "not yet"),
        (is_bound, volume("Bound"), "met"),
        (is_bound, volume("Failed"), "terminal"),
        (is_bound, volume("Lost"), "terminal"),
        (is_available, volume("Pending"), "not yet"),
        (is_available, volume("Available"), "met"),
        (is_available, volume("Bound"), "terminal"),
        (is_gone, None, "met"),
        (is_gone, RUNNING, "not yet"),
        (is_running, None, "not yet"),
        (is_running, pod(phase="Pending"), "not yet"),
        (is_running, RUNNING, "met"),
        (is_running, pod("node-1", phase="Running"), "not yet"),
        (is_running, pod("node-1", phase="Running", containerStatuses=containers("running", "waiting")), "not yet"),
        (is_running, pod("n", phase="Running", leaving=True, containerStatuses=containers("running")), "not yet"),
        (is_running, pod("node-1", phase="Pending", containerStatuses=containers("waiting")), "not yet"),
        (is_running, pod("node-1", phase="Failed", reason="VolumeNodeAffinity"), "terminal"),
        (is_running, pod("node-1", phase="Succeeded"), "terminal"),
        (ON_1, RUNNING, "met"),
        (ON_1, pod(phase="Pending"), "not yet"),
        (ON_1, pod("node-1", phase="Pending"), "not yet"),
        (ON_1, pod("node-2", phase="Pending"), "terminal"),
        (ON_1, None, "not yet"),
        (is_unschedulable, pod(phase="Pending"), "not yet"),
        (is_unschedulable, refused(TAINTED), "met"),
        (is_unschedulable, refused("gated", reason="SchedulingGated"), "not yet"),
        (is_unschedulable, RUNNING, "terminal"),
        (is_unschedulable_because(), refused(NEWER), "met"),
        (is_unschedulable_because(), refused(OLDER), "met"),
        (is_unschedulable_because(), refused(TAINTED), "met"),
        (is_unschedulable_because(), refused("0/3: pod has unbound immediate PersistentVolumeClaims."), "not yet"),
        (is_waiting_to_start, None, "not yet"),
        (is_waiting_to_start, pod("n", phase="Pending"), "not yet"),
        (is_waiting_to_start, held("ContainerCreating"), "met"),
        (is_waiting_to_start, held("ContainerCreating", "ImagePullBackOff"), "not yet"),
        (is_waiting_to_start, pod("n", phase="Pending", containerStatuses=containers("running")), "not yet"),
        (is_waiting_to_start, RUNNING, "terminal"),
        (is_waiting_to_start, pod("n", phase="Failed", reason="VolumeNodeAffinity"), "terminal"),
        (is_succeeded, pod("n", phase="Succeeded"), "met"),
        (is_succeeded, pod("n", phase="Failed"), "terminal"),
        (is_ready_statefulset(2), statefulset(1), "not yet"),
        (is_ready_statefulset(2), statefulset(1, observedGeneration=1, replicas=2, readyReplicas=2), "met"),
        (is_ready_statefulset(2), statefulset(2, observedGeneration=1, replicas=2, readyReplicas=2), "not yet"),
        (is_ready_statefulset(2), statefulset(1, observedGeneration=1, replicas=3, readyReplicas=2), "not yet"),
        (is_ready_statefulset(0), statefulset(1, observedGeneration=1, replicas=0), "met"),
        (replacing("u1", is_running), RUNNING, "not yet"),
        (replacing("u0", is_running), RUNNING, "met"),
        (replacing("u0", is_running), None, "not yet"),
        (replacing("u0", ON_1), pod("node-2", phase="Pending"), "terminal"),
    ],
)
def test_states(condition: Condition, obj: Obj | None, state: str) -> None:
    """Each condition tells met, not yet and terminal apart."""
    assert condition(obj).state == state


@pytest.mark.parametrize(
    ("reason", "text", "uid", "state"),
    [
        ("FailedMount", "no matching NodeSelectorTerms", None, "met"),
        ("FailedMount", "", "u1", "met"),
        ("FailedMount", "", "u2", "not yet"),
        ("FailedMount", "something else", None, "not yet"),
        ("FailedAttachVolume", "", None, "not yet"),
    ],
)
def test_events(reason: str, text: str, uid: str | None, state: str) -> None:
    """An event is told by reason, text and the UID of the object it is about."""
    event = {
        "reason": "FailedMount",
        "message": 'MountVolume.NodeAffinity check failed for volume "pv-a" : no matching NodeSelectorTerms',
        "involvedObject": {"uid": "u1"},
    }
    assert has_event(reason, text, uid=uid)(event).state == state
    assert has_event(reason)(None).state == "not yet"


@pytest.mark.parametrize(
    ("message", "state", "usual"),
    [
        ('MountVolume.NodeAffinity check failed for volume "pv-a" : no matching NodeSelectorTerms', "met", True),
        ("this node may not have the volume", "met", False),
        ('failed to fetch PVC: no relationship found between node "n" and this object', "not yet", False),
    ],
)
def test_a_kubelets_refusal_is_told_in_any_words_but_the_authorisers(message: str, state: str, usual: bool) -> None:
    """Every FailedMount counts, save one that passes by itself; whether its words prove anything is asked later."""
    condition = is_refused_by_kubelet()
    event: Obj = {"reason": "FailedMount", "message": message, "involvedObject": {}}
    assert condition(event).state == state
    assert bool(re.search(condition.words, message)) == usual
    assert condition({**event, "reason": "FailedAttachVolume"}).state == "not yet"


def test_a_refusals_usual_words_are_known_and_others_are_not_taken_for_them() -> None:
    """The scheduler's words of every release are known; a taint's are none of them."""
    words = is_unschedulable_because().words
    assert re.search(words, NEWER)
    assert re.search(words, OLDER)
    assert not re.search(words, TAINTED)


BY_KUBELET = [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": "its own"}]
BY_GC = [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": "node is gone"}]
IMAGE = [{"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]


@pytest.mark.parametrize(
    ("condition", "obj", "unjudged"),
    [
        (is_running, pod("n", phase="Failed", reason="Evicted", message="disk"), "Evicted: disk"),
        (is_running, pod("n", phase="Failed", reason="OutOfcpu"), "OutOfcpu:"),
        (is_succeeded, pod("n", phase="Failed", reason="NodeShutdown"), "NodeShutdown:"),
        (is_running, pod("n", phase="Pending", containerStatuses=IMAGE), "ImagePullBackOff: no such image"),
        (is_waiting_to_start, pod("n", phase="Failed", reason="UnexpectedAdmissionError"), "UnexpectedAdmissionError:"),
        (is_running, pod("n", phase="Failed", reason="VolumeNodeAffinity"), ""),
        (is_running, pod("n", phase="Failed", reason="SomethingNew"), ""),
        (is_running, pod("n", phase="Failed", reason="VolumeNodeAffinity", conditions=BY_KUBELET), ""),
        (is_running, pod("n", phase="Failed", conditions=BY_KUBELET), ""),
        (is_running, pod("n", phase="Running", conditions=BY_KUBELET), ""),
        (is_running, pod("n", phase="Failed", reason="Evicted", conditions=BY_KUBELET), "Evicted:"),
        (is_running, pod("n", phase="Failed", conditions=BY_GC), "DeletionByPodGC: node is gone"),
        (ON_1, pod("node-2", phase="Failed", reason="Evicted"), ""),
        (ON_1, pod("node-1", phase="Failed", reason="Evicted"), "Evicted:"),
        (is_running, RUNNING, ""),
    ],
)
def test_surroundings_are_told_apart_from_what_kubernetes_did(condition: Condition, obj: Obj, unjudged: str) -> None:
    """Evictions, full nodes and missing images judge nobody; a wrong node, and reasons of a kubelet's own, do."""
    look = condition(obj)
    assert look.state in ("terminal", "not yet", "met")
    assert look.unjudged == unjudged


def test_a_node_that_joined_meanwhile_is_neither_right_nor_wrong() -> None:
    """What nodes there were when the right ones were chosen is known; of a later one nothing is."""
    condition = is_running_on(["node-1"], "in b", known=["node-1", "node-2"])
    assert condition(pod("node-2", phase="Pending")).unjudged == ""
    later = condition(pod("node-3", phase="Pending"))
    assert (later.state, later.unjudged) == ("terminal", "node node-3 joined the cluster meanwhile")


def test_looks_say_what_was_seen() -> None:
    """What a look saw is one line that holds phase, node, containers and the scheduler's reason."""
    assert describe(None) == "no such object"
    assert is_running(RUNNING).seen == "Running, on node-1, c0 running, c1 running"
    waiting = [{"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}}]
    stuck = pod("node-1", leaving=True, phase="Pending", containerStatuses=waiting)
    assert describe(stuck) == "terminating, Pending, on node-1, c waiting (ContainerCreating)"
    assert describe(refused("no node")) == "Pending, PodScheduled=False (Unschedulable): no node"
    assert describe(volume("Bound", in_zone("a"))) == "Bound, nodeAffinity topology.kubernetes.io/zone In [a]"
    assert describe(statefulset(1, replicas=2)) == "0 of 2 replicas ready"
    assert describe({"metadata": {}}) == "present"


def test_names_fit_into_sentences() -> None:
    """Names read after "was not"."""
    assert str(ON_1) == "running on a node in us-east1-b"
    assert str(replacing("u", is_running)) == "replaced and running"


def running(**changes: Any) -> Obj:
    container = {"name": "c", "containerID": "x", "restartCount": 0, "state": {"running": {"startedAt": "t"}}}
    return pod("n", phase="Running", startTime="t", containerStatuses=[container | changes])


@pytest.mark.parametrize(
    "now",
    [
        None,
        running(restartCount=1),
        running(containerID="y"),
        running(state={"waiting": {}}),
        pod("n", phase="Running", startTime="t", containerStatuses=[{"name": "c", "state": {"waiting": {}}}]),
        {**running(), "metadata": {"name": "p", "uid": "u2"}},
        {**running(), "metadata": {"name": "p", "uid": "u1", "deletionTimestamp": "now"}},
        {**running(), "spec": {"nodeName": "m"}},
        {**running(), "status": {**running()["status"], "phase": "Failed"}},
    ],
    ids=["gone", "restarted", "other container", "waiting", "nameless", "replaced", "terminating", "moved", "failed"],
)
def test_whatever_happens_to_a_running_pod_affects_it(now):
    """Any trace of a restart, a move, a failure or a deletion counts; new annotations do not."""
    condition = is_affected_since(running())
    assert condition(now).state == "met"
    annotated = {**running(), "metadata": {"name": "p", "uid": "u1", "annotations": {"a": "b"}}}
    assert condition(annotated).state == "not yet"


def test_a_message_says_what_of_a_running_pod_is_not_as_before():
    """A kubelet that ends a pod may write phase Running once more, without containers: the phase tells nothing."""
    now = pod("n", phase="Running", startTime="t")
    assert is_affected_since(running())(now).seen == "Running, on n; not as before: containers"


def test_a_pod_is_scheduled_as_soon_as_it_has_a_node():
    """Bound counts, running or not: a kubelet that holds a pod back does not undo what the scheduler did."""
    assert is_scheduled(pod(phase="Pending")).state == "not yet"
    assert is_scheduled(pod("n", phase="Pending")).state == "met"
    assert is_scheduled(None).state == "not yet"
