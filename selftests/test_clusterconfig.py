"""Cluster configurations: what is read, and what is refused by name."""

import pytest

from pvaffinity.clusterconfig import GATE, load_config
from pvaffinity.errors import UserError
from pvaffinity.versions import clusterconfigs_dir, load_versions

HEAD = "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\n"


def read(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_config(str(path))


@pytest.mark.parametrize("path", sorted(clusterconfigs_dir().glob("*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_configuration_has_the_same_topology(path):
    """The shipped configurations differ in their gates only, so that results can be compared."""
    nodes = load_config(path.stem).nodes
    assert nodes == load_config("gate-off").nodes
    zones = {n.labels.get("topology.kubernetes.io/zone") for n in nodes if n.role == "worker"}
    assert zones == {"us-east1-b", "us-east1-c", "us-east1-d", "us-west1-a", None}


@pytest.mark.parametrize(
    "name,apiserver,scheduler",
    [("gate-off", None, None), ("gate-on", True, True), ("gate-apiserver-only", True, None)],
)
def test_the_gate_is_read_for_each_component(name, apiserver, scheduler):
    """The gate of a component is the document's featureGates, or the component's own flag."""
    config = load_config(name)
    assert (config.gate_for("kube-apiserver"), config.gate_for("kube-scheduler")) == (apiserver, scheduler)


@pytest.mark.parametrize(
    "text,told",
    [
        (HEAD + "featureGate: {}\n", "unknown key featureGate; did you mean featureGates?"),
        (HEAD + "nodes:\n- role: control-plane\n  label: {}\n", "unknown key nodes[0].label; did you mean labels?"),
        (HEAD + "nodes:\n- role: master\n", "nodes[0].role is 'master'"),
        (HEAD + "nodes:\n- role: worker\n", "has 0 control-plane nodes"),
        (HEAD + f"featureGates: {{{GATE}: 'yes'}}\n", f'featureGates.{GATE} is "yes"'),
        (
            HEAD + "featureGates: {MutablePVNodeAfinity: true}\n",
            f"featureGates.MutablePVNodeAfinity; did you mean {GATE}?",
        ),
        (HEAD + "featureGates: {mutablePvNodeAffinity: true}\n", f"did you mean {GATE}?"),
        (
            HEAD + "kubeadmConfigPatches: ['{kind: ClusterConfiguration, apiServer: {extraArgs: "
            '{feature-gates: "Other=true, MutablePVNodeAffinty=true"}}}\']\n',
            f"apiServer.extraArgs: feature-gates.MutablePVNodeAffinty; did you mean {GATE}?",
        ),
        (
            HEAD
            + "kubeadmConfigPatches: ['{kind: KubeletConfiguration, featureGates: {MutablePVNodeAffinitys: true}}']\n",
            f"kubeadmConfigPatches[0]: featureGates.MutablePVNodeAffinitys; did you mean {GATE}?",
        ),
        (HEAD + "kubeadmConfigPatches: ['kind: InitConfiguration']\n", "'InitConfiguration' are not understood"),
        (
            HEAD + "kubeadmConfigPatches: ['{kind: ClusterConfiguration, apiServers: {}}']\n",
            "did you mean apiServer?",
        ),
        ("kind: Pod\napiVersion: v1\n", "is not a kind cluster document"),
        ("- a\n- b\n", "is not a mapping"),
        ("a: [", "is not readable YAML"),
        (b"\xff\xfe", "is not readable YAML"),
    ],
)
def test_a_document_that_is_not_understood_is_refused_by_name(tmp_path, text, told):
    """A misspelt key, role, gate value or patch is named, with what was probably meant."""
    with pytest.raises(UserError) as caught:
        read(tmp_path, text)
    assert told in str(caught.value)


def test_other_gates_are_not_taken_for_the_projects(tmp_path):
    """Any other gate is left to the components, also one whose name begins alike."""
    gates = {"MutableCSINodeAllocatableCount": True, "MutablePodResourcesForSuspendedJobs": False, GATE: True}
    assert read(tmp_path, HEAD + f"featureGates: {gates}\n").feature_gates == gates


def test_both_kubeadm_forms_of_extra_args_are_read(tmp_path):
    """v1beta3 gives extraArgs as a map, v1beta4 as a list; both mean the same flags."""
    for form in ("{v: '4'}", "[{name: v, value: '4'}]"):
        patch = f"{{kind: ClusterConfiguration, scheduler: {{extraArgs: {form}}}}}"
        config = read(tmp_path, HEAD + f'kubeadmConfigPatches: ["{patch}"]\n')
        assert config.component_args["kube-scheduler"] == {"v": "4"}


def test_an_unknown_name_is_answered_with_the_known_ones():
    """A misspelt configuration name is answered with the closest one and with all of them."""
    with pytest.raises(UserError) as caught:
        load_config("gate-onn")
    assert "did you mean gate-on?" in str(caught.value)
    assert "gate-apiserver-only" in caught.value.fix


def test_the_gate_on_a_release_without_it_is_refused_before_anything_starts():
    """The API server of 1.34 would exit with "unrecognized feature gate"; we say so first."""
    release = load_versions().find("1.34")
    with pytest.raises(UserError, match="does not know"):
        load_config("gate-on").check_release(release)
    load_config("gate-off").check_release(release)
