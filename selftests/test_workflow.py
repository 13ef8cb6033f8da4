"""The CI workflow: its matrix is what the project knows, no leg loses its results, no job may do more than it must."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from pvaffinity.versions import clusterconfigs_dir, load_versions

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / ".github/workflows/conformance.yml").read_text()
JOBS = yaml.safe_load(TEXT)["jobs"]


def test_matrix_is_every_release_on_both_providers():
    """The legs are what versions.toml knows times local and kind, and the report expects the same."""
    matrix = JOBS["suite"]["strategy"]["matrix"]
    assert matrix == {"provider": ["local", "kind"], "version": [r.minor for r in load_versions().releases]}
    assert JOBS["suite"]["strategy"]["fail-fast"] is False
    assert TEXT.count("--expect " + ",".join(matrix["provider"])) == 2


def test_kind_is_the_one_whose_images_we_name():
    """The workflow installs the kind of whose release versions.toml has the node images."""
    named = re.search(r"kind_image. is what kind (v[\d.]+)", (clusterconfigs_dir() / "versions.toml").read_text())
    assert f"sigs.k8s.io/kind@{named[1]}" in TEXT


def test_every_job_ends_and_every_action_is_pinned():
    """Each job has a time limit, and each action a major version."""
    for name, job in JOBS.items():
        assert 0 < job["timeout-minutes"] <= 60, name
        for step in job["steps"]:
            assert re.fullmatch(r"actions/[a-z-]+@v\d+", step.get("uses", "actions/x@v1")), step


def test_a_failing_leg_uploads_its_results():
    """The upload runs whatever happened before, under a name of the leg's own."""
    (upload,) = [s for s in JOBS["suite"]["steps"] if s.get("uses", "").startswith("actions/upload-artifact@")]
    assert upload["if"] == "always()"
    assert "${{ matrix.provider }}-${{ matrix.version }}" in upload["with"]["name"]
    assert upload["with"]["path"] == "reports/"


def test_only_publishing_may_write():
    """Everything reads; the job that puts up the site may write Pages, and only one of it runs at a time."""
    assert yaml.safe_load(TEXT)["permissions"] == {"contents": "read"}
    writing = {n: j["permissions"] for n, j in JOBS.items() if "write" in j.get("permissions", {}).values()}
    assert writing == {"publish": {"contents": "read", "pages": "write", "id-token": "write"}}
    assert JOBS["publish"]["concurrency"] == {"group": "pages", "cancel-in-progress": False}
    assert "needs.report.outputs.site" in JOBS["publish"]["if"]


@pytest.mark.parametrize(("ends", "code"), [("exit 0", 0), ("exit 1", 1)])
def test_actionlint_of_path_is_asked(tmp_path, ends, code):
    """check-workflows passes every workflow to actionlint and ends as it does."""
    (tmp_path / "actionlint").write_text(f'#!/bin/sh\necho "$@"\n{ends}\n')
    (tmp_path / "actionlint").chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([ROOT / ".ci/check-workflows"], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, ".github/workflows/conformance.yml\n")
