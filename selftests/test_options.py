"""The suite's options as a user meets them: wrong ones are told before anything is started, with exit code 4."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def run(*arguments, suite="suites/test_gate_state.py"):
    command = [sys.executable, "-m", "pytest", str(ROOT / suite), "--collect-only", "-q", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.parametrize(
    "arguments,what,fix",
    [
        (["--kubernetes-version", "1.3"], "unknown Kubernetes version '1.3'", "use one of 1.34, 1.35"),
        (["--cluster-config", "gate-of"], "did you mean gate-off?", "gate-apiserver-only"),
        (["--cluster-config", "no/such.yaml"], "no cluster configuration 'no/such.yaml'", "kind document"),
        (["--provider", "locl"], "unknown provider 'locl'; did you mean local?", "use one of auto"),
        (["--provider", "minikube"], "unknown provider 'minikube'", "use one of auto"),
        (["--binaries", "/no/such/directory"], "no directory /no/such/directory", "name a directory"),
        (["--cluster-name", "My_Cluster"], "'My_Cluster' cannot begin a cluster's name", "lower-case letters"),
        (["--cluster-name", "a-name-of-17-long"], "cannot begin a cluster's name", "at most 16"),
        (["--reports", ""], "--reports is empty", "name a directory"),
        (["--binaries="], "--binaries is empty", "leave it out"),
        (
            ["--provider", "kind", "--binaries", "src"],
            "--binaries is for the provider local, not for the provider kind",
            "use --provider local, or leave --binaries out",
        ),
        (["--provider=existing", "--binaries=src"], "--binaries is for the provider local", "use --provider local"),
        (["--provider", "local", "--kind-image", "x"], "--kind-image is for the provider kind", "--provider kind"),
        (["--provider", "local", "--kind-bin", "x"], "--kind-bin is for the provider kind", "--provider kind"),
        (["--binaries", "src", "--kind-image", "x"], "no provider heeds --binaries and --kind-image", "leave one"),
        (["--reports", "/proc/no/such"], "nothing can be made in /proc", "name another directory"),
        (["--reports", "README.md/x", "--full-report"], "README.md is not a directory", "name another directory"),
    ],
)
def test_a_wrong_option_is_told_in_two_lines(arguments, what, fix):
    """One line what, one line what to do, no traceback, exit code 4."""
    result = run(*arguments)
    assert result.returncode == 4, result.stdout + result.stderr
    assert what in result.stderr
    assert f"to fix: {fix}" in result.stderr or fix in result.stderr
    assert "Traceback" not in result.stderr + result.stdout


def header(*arguments, **environment):
    command = [sys.executable, "-m", "pytest", "suites/test_gate_state.py", "--collect-only", *arguments]
    env = {**os.environ, **environment}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=240, check=False).stdout


def test_a_default_for_another_provider_is_noted():
    """What the environment sets for another provider does not end the run; the header says it is unused."""
    told = header("--provider", "local", PYTEST_ADDOPTS="--kind-image kindest/node:v1.37.0")
    assert "provider local (asked for)" in told
    assert "--kind-image is for the provider kind and does nothing here" in told


def test_an_option_of_one_provider_asks_for_it():
    """Who names binaries, and no provider, gets the provider that uses them, also beside a container engine."""
    assert "provider local (asked for)" in header("--binaries", "src")


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_an_engine_that_does_not_answer_is_told_once(tmp_path, own_run, workers):
    """What every cluster of the session would miss ends it before the first test: exit code 4, two lines."""
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho 'Cannot connect to the daemon' >&2\nexit 1\n")
    docker.chmod(0o755)
    command = [sys.executable, "-m", "pytest", "suites/test_rbac.py", "--provider", "kind", *workers]
    env = {**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"}
    env.pop("KIND_EXPERIMENTAL_PROVIDER", None)
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=240, check=False)
    told = done.stdout + done.stderr
    assert done.returncode == 4, told
    assert (told.count("docker does not answer"), told.count("to fix: ")) == (1, 1), told
    assert "Traceback" not in told


def test_a_misspelt_key_in_a_configuration_is_named(tmp_path):
    """A configuration of the user's own with a misspelt key stops the session before the first test."""
    path = tmp_path / "mine.yaml"
    path.write_text("kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nfeatureGatess: {}\n")
    result = run("--cluster-config", str(path))
    assert result.returncode == 4
    assert "unknown key featureGatess; did you mean featureGates?" in result.stderr


def ids(*arguments, suite="suites/test_gate_state.py"):
    result = run(*arguments, suite=suite)
    assert result.returncode == 0, result.stdout + result.stderr
    return {line.rsplit("[", 1)[1].rstrip("]") for line in result.stdout.splitlines() if "::" in line}


def test_a_test_runs_once_per_release_and_configuration():
    """The id of a test says release and configuration; every one of the session is there."""
    assert ids("--kubernetes-version", "1.35", "--kubernetes-version", "1.37") == {
        f"{minor}-{config}" for minor in ("1.35", "1.37") for config in ("gate-off", "gate-on")
    }


def test_all_means_every_known_release_and_1_34_only_without_the_gate():
    """``all`` names every release; the one that has no gate is tested as gate-off only."""
    found = ids("--kubernetes-version", "all")
    assert "1.34-gate-off" in found
    assert "1.34-gate-on" not in found
    assert {f"{minor}-gate-on" for minor in ("1.35", "1.36", "1.37")} <= found


def test_the_gate_of_an_unknown_document_is_read_from_it(tmp_path):
    """A document of the user's own is tested as what it sets; the shipped names keep their promise."""
    mine = tmp_path / "mine.yaml"
    mine.write_text("kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nfeatureGates: {MutablePVNodeAffinity: true}\n")
    assert ids("--cluster-config", str(mine), suite="suites/test_relaxing.py") >= {"1.37-mine"}
    flipped = tmp_path / "gate-off.yaml"
    flipped.write_text(mine.read_text())
    found = ids("--cluster-config", str(flipped), suite="suites/test_relaxing.py")
    assert found == {"1.37-gate-off", "none"}  # only the test that expects the gate off runs there


def test_a_shipped_name_on_another_gate_is_noted(tmp_path):
    """A document judged by its name, not by what it sets, is told in the header; one that keeps the promise is not."""
    mine = tmp_path / "gate-on.yaml"
    mine.write_text("kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nfeatureGates: {MutablePVNodeAffinity: false}\n")
    assert f"{mine} sets gate-off but is tested as gate-on, as its name promises; rename it" in header(
        "--cluster-config", str(mine)
    )
    assert "as its name promises" not in header(
        "--cluster-config", "gate-apiserver-only", "--cluster-config", "gate-on"
    )


def test_the_help_says_what_options_of_pytest_kind_mean_here():
    """pytest-kind registers them and describes them for itself; where they mean something else here, help says it."""
    command = [sys.executable, "-m", "pytest", "suites", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    told = " ".join(done.stdout.split())
    assert "--kubeconfig, the cluster of 'existing', which alone takes it" in told
    assert "--cluster-name, what clusters' names begin with (at most 16 characters)" in told


def test_where_no_configuration_fits_the_reason_is_told():
    """A test that needs the gate is skipped with the reason where the session has no such cluster."""
    command = [sys.executable, "-m", "pytest", "suites/test_disk_generations.py", "--kubernetes-version", "1.34", "-rs"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert "not supported: Kubernetes 1.34.4 has no MutablePVNodeAffinity" in result.stdout


def test_two_of_the_same_name_are_refused(tmp_path):
    """Two documents of one name, or two patch releases of one minor, would share a cluster: exit code 4, and which."""
    mine = tmp_path / "gate-on.yaml"
    mine.write_text("kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\n")
    for wrong, what in (
        (["--cluster-config", "gate-on", "--cluster-config", str(mine)], "more than one configuration named gate-on"),
        (["--kubernetes-version", "1.37", "--kubernetes-version", "1.37.1"], "more than one release 1.37"),
    ):
        result = run("--provider", "local", *wrong)
        assert (result.returncode, what in result.stderr) == (4, True), result.stdout + result.stderr
    assert run("--cluster-config", "gate-on", "--cluster-config", "gate-on").returncode == 0


def test_where_nothing_can_be_judged_the_exit_code_says_so():
    """1.34 has no gate: on gate-on alone every check is skipped, which is no success."""
    command = [sys.executable, "-m", "pytest", "suites/test_relaxing.py", "--kubernetes-version", "1.34"]
    command += ["--provider", "local", "--cluster-config", "gate-on"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, timeout=240, check=False).returncode == 5
