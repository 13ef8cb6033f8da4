"""On a real cluster whose components are stopped, killed or guarded: what is not judged, and what is all the same."""

import functools
import os
import secrets
import signal
import time
from dataclasses import replace

import psutil
import pytest

from pvaffinity import manifests
from pvaffinity.affinity import in_zone
from pvaffinity.api import MERGE_PATCH, Api
from pvaffinity.budgets import BUDGETS, Budget
from pvaffinity.clusterconfig import load_config
from pvaffinity.conditions import (
    is_bound,
    is_ready_statefulset,
    is_refused_by_kubelet,
    is_running,
    is_scheduled,
    is_unschedulable_because,
)
from pvaffinity.controls import Controls
from pvaffinity.errors import ApiError
from pvaffinity.judging import why_not_judged
from pvaffinity.local.preflight import try_namespaces
from pvaffinity.objects import Ref
from pvaffinity.outcomes import attempt
from pvaffinity.places import NotSupportedError, Places
from pvaffinity.providers.base import ClusterSpec
from pvaffinity.providers.local import LocalProvider
from pvaffinity.timeline import Timeline
from pvaffinity.topology import Topology
from pvaffinity.usable import exists
from pvaffinity.versions import load_versions
from pvaffinity.waiting import WaitTimeout, WaitUnknown, until
from selftests.awaiting import eventually

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(bool(try_namespaces()[0]), reason="this machine does not allow user namespaces"),
]

SMALL = """kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
featureGates: {MutablePVNodeAffinity: true}
nodes:
  - role: control-plane
  - role: worker
    labels: {topology.kubernetes.io/zone: a}
"""
SOON = Budget("schedule", 4, "patience", "", "")
LIMITS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


@pytest.fixture(scope="module")
def made(named, short):
    """A gate-on cluster of one worker."""
    config = short / "small.yaml"
    config.write_text(SMALL)
    directory = short / secrets.token_hex(2)
    directory.mkdir()
    provider = LocalProvider(named)
    spec = ClusterSpec("local", load_versions().newest, load_config(str(config)))
    created = provider.create(spec, directory.name, directory, os.getpid())
    yield created
    provider.delete(created)


@pytest.fixture
def api(made):
    """The administrator."""
    return Api.from_kubeconfig(made.kubeconfig)


@pytest.fixture
def namespace(api):
    """A namespace in which pods can be made."""
    name = f"pv-{secrets.token_hex(4)}"
    api.create({"kind": "Namespace", "metadata": {"name": name}})
    until(api, Ref("ServiceAccount", "default", name), exists, "bind")
    yield name
    api.delete(Ref("Namespace", name))


@pytest.fixture
def controls(made, api, namespace, monkeypatch):
    """What a test's waits have, with a control that is given up soon."""
    monkeypatch.setitem(BUDGETS, "control", Budget("control", 8, "patience", "", ""))
    with Timeline(api, namespace) as line:
        yield Controls(api, namespace, functools.partial(LocalProvider().ailing, made), line.events)


@pytest.fixture
def volume(api, namespace):
    """Make a volume that is bound to a claim; answers their name."""
    names = []

    def make(affinity):
        name = f"{namespace}-{len(names)}"
        claim = Ref("PersistentVolumeClaim", name, namespace)
        value = affinity.to_dict() if affinity else None
        api.create(manifests.persistent_volume(name, value, mark=namespace, claim_ref=claim))
        names.append(name)
        api.create(manifests.claim(claim, name))
        until(api, claim, is_bound)
        return name

    yield make
    for name in names:
        api.delete(Ref("PersistentVolume", name))


def create_pod(api, namespace, *claims, **spec):
    """A pod of these claims."""
    ref = Ref("Pod", f"{namespace}-pod-{secrets.token_hex(2)}", namespace)
    api.create(manifests.pod(ref, claims, **spec))
    return ref


def process_of(made, component):
    """The process of a component, as this machine sees it."""
    mine = str(made.directory)
    found = [
        p
        for p in psutil.process_iter(["name", "cmdline"])
        if p.info["name"] == component and any(mine in word for word in p.info["cmdline"] or ())
    ]
    assert len(found) == 1, found
    return found[0]


def test_a_wait_that_runs_out_on_a_healthy_cluster_is_a_judgement(api, namespace, controls, volume):
    """A pod that its volume keeps from every node is awaited in vain; the control is placed: broken."""
    waiting = create_pod(api, namespace, volume(in_zone("nowhere")))
    with pytest.raises(WaitTimeout) as caught:
        until(api, waiting, is_scheduled, SOON, control=controls)
    assert why_not_judged(caught.value) == ""
    assert not [p for p in api.list("Pod", namespace) if "control" in p["metadata"]["name"]]


def test_a_wait_for_a_scheduler_that_stands_still_is_not_judged(made, api, namespace, controls):
    """A stopped scheduler (SIGSTOP) places neither the pod nor its control: not judged, with that reason."""
    scheduler = process_of(made, "kube-scheduler")
    scheduler.suspend()
    try:
        with pytest.raises(WaitUnknown) as caught:
            until(api, create_pod(api, namespace), is_scheduled, SOON, control=controls)
    finally:
        scheduler.resume()
    assert "nor does a control get there: Pod" in why_not_judged(caught.value)
    until(api, create_pod(api, namespace), is_running)


def test_a_dead_component_is_named(made, api, namespace, controls, named):
    """A scheduler that was killed is named by the cluster's supervisor, and nothing is judged."""
    process_of(made, "kube-scheduler").kill()
    try:
        with pytest.raises(WaitUnknown) as caught:
            until(api, create_pod(api, namespace), is_scheduled, SOON, control=controls)
    finally:
        LocalProvider(named).start_component(made, "kube-scheduler")
    assert why_not_judged(caught.value).endswith(f"not running in cluster {made.name}: kube-scheduler")


@pytest.fixture
def guarded(api, namespace):
    """An admission policy that wants limits for every container of the namespace's pods."""
    name = {"metadata": {"name": namespace}}
    policy = {
        "kind": "ValidatingAdmissionPolicy",
        "apiVersion": "admissionregistration.k8s.io/v1",
        **name,
        "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                ],
            },
            "validations": [
                {
                    "expression": "object.spec.containers.all(c, has(c.resources) && has(c.resources.limits))",
                    "message": "every container needs limits",
                }
            ],
        },
    }
    binding = {**policy, "kind": "ValidatingAdmissionPolicyBinding"}
    binding["spec"] = {"policyName": namespace, "validationActions": ["Deny"]}
    api.request("POST", LIMITS, policy)
    api.request("POST", f"{LIMITS[:-3]}ybindings", binding)
    trial = manifests.pod(Ref("Pod", "trial", namespace), [])

    def refused():
        try:
            api.create(trial, dryRun="All")
        except ApiError as error:
            return error
        return None

    yield eventually(refused)
    api.request("DELETE", f"{LIMITS[:-3]}ybindings/{namespace}")
    api.request("DELETE", f"{LIMITS}/{namespace}")


def test_a_policys_refusal_is_not_judged_and_ends_a_wait_at_once(api, namespace, controls, guarded):
    """Refused by a policy, the suite's own pod and a StatefulSet's are not judged; the wait for these ends at once."""
    assert guarded.code == 422
    assert why_not_judged(guarded).endswith("denied request: every container needs limits")
    with pytest.raises(ApiError):  # no outcome that a check could take for a wrong one
        attempt(lambda: api.create(manifests.pod(Ref("Pod", "p", namespace), [])))
    owner = Ref("StatefulSet", "db", namespace)
    api.create(manifests.stateful_set(owner, []))
    began = time.monotonic()
    with pytest.raises(WaitUnknown) as caught:
        until(api, owner, is_ready_statefulset(1), control=controls)
    assert time.monotonic() - began < 10
    assert "denied request: every container needs limits" in why_not_judged(caught.value)


def test_in_other_words_the_schedulers_refusal_is_proven_by_a_control(api, namespace, controls, volume):
    """A pod refused for its volume needs no words: its like, whose volume has no affinity, is placed."""
    other_words = replace(is_unschedulable_because(), words="words of another release")
    waiting = create_pod(api, namespace, volume(in_zone("nowhere")))
    met = until(api, waiting, other_words, control=controls)
    controls.prove(other_words, waiting, met)


def test_in_other_words_the_kubelets_refusal_is_proven_by_a_control(api, namespace, controls, volume):
    """A mount refused once more on a node that has just run the pod's like is refused for the affinity."""
    other_words = replace(is_refused_by_kubelet(), words="words of another release")
    name = volume(in_zone("b"))
    misplaced = create_pod(api, namespace, name, schedulerName="pvaffinity.dev/none")
    target = {"apiVersion": "v1", "kind": "Node", "name": "worker"}
    metadata = {"name": misplaced.name, "namespace": namespace}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    api.request("POST", f"{misplaced.path}/binding", body)
    met = until(api, misplaced, other_words, control=controls)
    controls.prove(other_words, misplaced, met)


def test_where_every_node_is_tainted_nothing_is_blamed_on_the_volume(api, namespace, controls, volume):
    """No node would take the pod without its volume: not supported, found out before the wait, and by the control."""
    worker = Ref("Node", "worker")
    api.patch(worker, {"spec": {"taints": [{"key": "busy", "effect": "NoSchedule"}]}}, MERGE_PATCH)
    try:
        with pytest.raises(NotSupportedError, match="no schedulable node"):
            _ = Places(Topology.read(api)).nowhere
        waiting = create_pod(api, namespace, volume(in_zone("nowhere")))
        met = until(api, waiting, is_unschedulable_because(), control=controls)
        with pytest.raises(NotSupportedError, match="without its volume's affinity either: 0/2 nodes are available"):
            controls.prove(is_unschedulable_because(), waiting, met)
    finally:
        api.patch(worker, {"spec": {"taints": None}}, MERGE_PATCH)


def test_a_wait_for_an_api_server_that_was_killed_is_not_judged(made, api, namespace, controls, named, quick_waits):
    """An API server that dies in the middle of a wait leaves nothing to judge; nor does a request that it refuses."""
    waiting = create_pod(api, namespace, schedulerName="pvaffinity.dev/none")
    os.kill(process_of(made, "kube-apiserver").pid, signal.SIGKILL)
    try:
        with pytest.raises(WaitUnknown, match="nor looked at at its end") as caught:
            until(api, waiting, is_scheduled, SOON, control=controls)
        with pytest.raises(Exception, match=r".") as refused:
            attempt(lambda: api.get(waiting))
    finally:
        LocalProvider(named).start_component(made, "kube-apiserver")
    assert why_not_judged(caught.value)
    assert why_not_judged(refused.value)
