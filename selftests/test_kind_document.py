"""The documents reach kind as they are; what is added is said here."""

import copy
import dataclasses

import pytest
import yaml

from pvaffinity.clusterconfig import load_config
from pvaffinity.providers.kind_document import document_for
from pvaffinity.versions import clusterconfigs_dir, load_versions
from selftests.engines import OFFICIAL, OURS, engine


@pytest.mark.parametrize("path", sorted(clusterconfigs_dir().glob("*.yaml")), ids=lambda p: p.stem)
def test_official_images_get_the_documents_unchanged(path):
    """What kind reads is what the file says, nothing left out, and nothing added but flags of the controllers."""
    after = yaml.safe_load(document_for(load_config(path.stem), OFFICIAL, engine(cgroup=1), load_versions().newest))
    added = {patch["version"]: yaml.safe_load(patch["patch"]) for patch in after.pop("kubeadmConfigPatchesJSON6902")}
    assert after == yaml.safe_load(path.read_text())
    assert {version: {operation["path"].split("/")[1] for operation in patch} for version, patch in added.items()} == {
        "v1beta3": {"controllerManager", "scheduler"},
        "v1beta4": {"controllerManager", "scheduler"},
    }


BINDER, LEADER = ("pvclaimbinder-sync-period", "1s"), ("leader-elect", "false")
SCHEDULER_V4 = """
kubeadmConfigPatches:
  - |
    apiVersion: kubeadm.k8s.io/v1beta4
    kind: ClusterConfiguration
    scheduler: {extraArgs: [{name: v, value: "4"}]}
"""


def patched(path, text, form, before):
    """The arguments of controller manager and scheduler, as kind's JSON patches leave them."""
    path.write_text(f"kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\n{text}")
    document = yaml.safe_load(document_for(load_config(str(path)), OFFICIAL, engine(), load_versions().newest))
    (patch,) = [p["patch"] for p in document["kubeadmConfigPatchesJSON6902"] if p["version"] == form]
    for operation in yaml.safe_load(patch):
        _, section, key, *last = operation["path"].split("/")
        assert (operation["op"], key) == ("add", "extraArgs")
        if not last:
            assert before[section] is None, "it would replace what is there"
            before[section] = operation["value"]
        elif last == ["-"]:
            before[section].append(operation["value"])
        else:
            before[section][last[0]] = operation["value"]
    return {
        section: {(a["name"], a["value"]) for a in args} if form == "v1beta4" else set((args or {}).items())
        for section, args in before.items()
    }


def test_flags_are_added_to_a_component_that_has_none(tmp_path):
    """Where kind writes null, for a scheduler without arguments, the patch makes the list, or the map."""
    for form, own in (("v1beta3", {"x": "1"}), ("v1beta4", [{"name": "x", "value": "1"}])):
        found = patched(tmp_path / "c.yaml", "", form, {"controllerManager": own, "scheduler": None})
        assert found == {"controllerManager": {("x", "1"), BINDER, LEADER}, "scheduler": {LEADER}}


@pytest.mark.parametrize("text", ["featureGates: {MutablePVNodeAffinity: true}", "networking: {ipFamily: ipv6}"])
def test_flags_are_added_to_those_that_kind_gives_it(tmp_path, text):
    """Where kind itself writes arguments, the patch adds to them and replaces none."""
    for form, own in (("v1beta3", {"x": "1"}), ("v1beta4", [{"name": "x", "value": "1"}])):
        found = patched(
            tmp_path / "c.yaml", text, form, {"controllerManager": copy.copy(own), "scheduler": copy.copy(own)}
        )
        assert found == {"controllerManager": {("x", "1"), BINDER, LEADER}, "scheduler": {("x", "1"), LEADER}}


def test_flags_are_added_to_those_of_a_patch_for_the_same_form(tmp_path):
    """A patch of the configuration fills the list of its own form only; in the other one there is none yet."""
    own = [{"name": "v", "value": "4"}]
    found = patched(tmp_path / "c.yaml", SCHEDULER_V4, "v1beta4", {"controllerManager": [], "scheduler": own})
    assert found["scheduler"] == {("v", "4"), LEADER}
    found = patched(tmp_path / "c.yaml", SCHEDULER_V4, "v1beta3", {"controllerManager": {}, "scheduler": None})
    assert found["scheduler"] == {LEADER}


def test_a_flag_that_the_configuration_sets_stays(tmp_path):
    """Who asks for leader election gets it."""
    text = SCHEDULER_V4.replace('name: v, value: "4"', 'name: leader-elect, value: "true"')
    own = [{"name": "leader-elect", "value": "true"}]
    found = patched(tmp_path / "c.yaml", text, "v1beta4", {"controllerManager": [], "scheduler": own})
    assert found == {"controllerManager": {BINDER, LEADER}, "scheduler": {("leader-elect", "true")}}


@pytest.mark.parametrize("path", sorted(clusterconfigs_dir().glob("*.yaml")), ids=lambda p: p.stem)
def test_our_images_only_add_the_overlay(path):
    """Nodes, labels and gates stay; only what cannot be pulled is left out, and every patch of the document is kept."""
    before = yaml.safe_load(path.read_text())
    after = yaml.safe_load(document_for(load_config(path.stem), OURS, engine(), load_versions().newest))
    del after["kubeadmConfigPatchesJSON6902"]
    patches, networking = after.pop("kubeadmConfigPatches"), after.pop("networking")
    assert networking == {"disableDefaultCNI": True, "kubeProxyMode": "none"}
    assert patches[: len(before.get("kubeadmConfigPatches", []))] == before.pop("kubeadmConfigPatches", [])
    assert after == before


def test_control_groups_v1_are_allowed_where_they_are_used():
    """failCgroupV1 is set on a machine with control groups v1, for releases that know it, and nowhere else."""
    newest, plain = load_versions().newest, load_config("gate-off")
    assert "failCgroupV1: false" in document_for(plain, OURS, engine(cgroup=1), newest)
    assert "failCgroupV1" not in document_for(plain, OURS, engine(cgroup=2), newest)
    old = dataclasses.replace(newest, key=(1, 30, 0))
    assert "failCgroupV1" not in document_for(plain, OURS, engine(cgroup=1), old)
