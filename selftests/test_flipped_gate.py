"""The suite is worth something only if it goes red: a configuration whose gate was flipped by hand must be noticed."""

import subprocess
import sys
from pathlib import Path

import pytest

from pvaffinity.clusterconfig import GATE
from pvaffinity.versions import clusterconfigs_dir

ROOT = Path(__file__).resolve().parents[1]
GATE_LINE = f"featureGates:\n  {GATE}: true\n"
CHECKS = (
    "suites/test_gate_state.py",
    "suites/test_relaxing.py::test_a_waiting_pod_is_scheduled_in_the_other_zone",
    "suites/test_immutability.py::test_with_the_gate_off_a_change_is_refused",
    "suites/test_immutability.py::test_with_the_gate_on_a_change_is_accepted",
)


def run_with(config: Path, reports: Path):
    command = [sys.executable, "-m", "pytest", *CHECKS, "-k", "not immutab or (zone-to-region and merge-patch)"]
    options = [
        "--cluster-config",
        str(config),
        "--provider",
        "local",
        "--reports",
        str(reports),
        "-p",
        "no:cacheprovider",
    ]
    return subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.cluster
@pytest.mark.parametrize(
    "name,find,put,measured,reason",
    [
        ("gate-on", GATE_LINE, "", "off", "refused with 422 Invalid (nodeAffinity: FieldValueInvalid)"),
        ("gate-off", "nodes:\n", GATE_LINE + "nodes:\n", "on", "accepted, expected: refused with 422"),
    ],
)
def test_a_gate_flipped_by_hand_turns_the_suite_red(tmp_path, name, find, put, measured, reason):
    """With the gate flipped inside the file, its behaviour tests fail and say what the server did instead."""
    original = (clusterconfigs_dir() / f"{name}.yaml").read_text()
    assert find in original
    flipped = tmp_path / f"{name}.yaml"
    flipped.write_text(original.replace(find, put, 1))

    result = run_with(flipped, tmp_path / "reports")

    assert result.returncode == 1, result.stdout[-3000:] + result.stderr[-2000:]
    assert "test_the_api_server_behaves_as_the_configuration_says" in result.stdout.split("short test summary")[1]
    assert reason in result.stdout
    assert f"The gate is {measured} on" in result.stdout
