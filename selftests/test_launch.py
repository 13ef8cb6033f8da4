"""A start that fails tells the user which file to change, and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pvaffinity.clusterconfig import load_config
from pvaffinity.errors import UserError
from pvaffinity.local.launch import Launch

HELP = """#!/bin/sh
echo '      --feature-gates  kube:MutablePVNodeAffinity=true|false (ALPHA - default=false)'
echo '                       kube:MutableCSINodeAllocatableCount=true|false (BETA)'
"""


@pytest.fixture
def explain(tmp_path):
    (tmp_path / "kube-apiserver").write_text(HELP)
    (tmp_path / "kube-apiserver").chmod(0o755)
    document = tmp_path / "typo.yaml"
    document.write_text(
        "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nfeatureGates: {MutableCSINodeAllocatableCont: true}\n"
    )
    binaries = {"kube-apiserver": tmp_path / "kube-apiserver", "kubelet": Path("/x/kubelet")}
    launch = Launch(tmp_path, load_config(str(document)), lambda name: binaries[name])

    def told(**said: Any) -> UserError:
        return launch._explain(said)

    return told


def test_a_misspelt_gate_names_file_key_and_the_likely_meaning(explain):
    """An unrecognised gate is told with the document, its key, and the gate that was probably meant."""
    error = explain(
        what="kube-apiserver exited (1): unrecognized feature gate: MutableCSINodeAllocatableCont",
        daemon="kube-apiserver",
    )
    assert error.what == "kube-apiserver exited (1): unrecognized feature gate: MutableCSINodeAllocatableCont"
    assert "correct featureGates.MutableCSINodeAllocatableCont in " in error.fix
    assert "typo.yaml; did you mean MutableCSINodeAllocatableCount?" in error.fix


def test_a_gate_that_is_not_in_feature_gates_is_looked_for_in_the_patches(explain):
    """A gate that only a kubelet patch sets is not looked for under featureGates."""
    error = explain(what="kubelet-worker exited (1): unrecognized feature gate: Other", daemon="kubelet-worker")
    assert error.fix.startswith("correct featureGates of the kubelet patch (Other)")
    assert "did you mean" not in error.fix


def test_a_binary_that_does_not_run_is_named(explain):
    """A damaged binary is told by its path, not by the daemon's name."""
    error = explain(what="kubelet-worker cannot be started: /x/kubelet: Exec format error", daemon="kubelet-worker")
    assert "replace /x/kubelet" in error.fix


def test_an_unknown_flag_is_sent_back_to_the_document(explain):
    """A flag the component does not know came from extraArgs."""
    assert "remove bogus from extraArgs" in explain(what="kube-scheduler exited (1): unknown flag: --bogus").fix


def test_refused_namespaces_lead_to_the_doctor(explain):
    """Where namespaces are refused the user is sent to the doctor."""
    error = explain(what="this machine does not let us create user namespaces: No space left", kind="namespaces")
    assert "pvaffinity doctor" in error.fix


def test_a_failure_of_any_other_kind_shows_the_log(explain):
    """The end of the log goes with the error."""
    error = explain(what="etcd runs but was not ready within 60 s", daemon="etcd", log="last words")
    assert error.detail == "last words"
    assert str(error).endswith("last words")
