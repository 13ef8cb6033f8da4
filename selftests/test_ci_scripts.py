"""The scripts of .ci/: what is left, what the totals are, whether there is a site to publish to."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CI = Path(__file__).resolve().parents[1] / ".ci"


def call(script, *arguments, **environment):
    env = {**os.environ, **{name: str(value) for name, value in environment.items()}}
    done = subprocess.run([CI / script, *arguments], env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def started():
    """Starts processes that carry a mark, and ends them."""
    running = []

    def start(mark):
        env = {"PATH": os.environ["PATH"], "PVAFFINITY_CLUSTER": str(mark)}
        code = "print(flush=True); import time; time.sleep(60)"
        process = subprocess.Popen([sys.executable, "-c", code, "kubelet"], env=env, stdout=subprocess.PIPE)
        process.stdout.readline()
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def test_nothing_left_is_silent(tmp_path):
    """Without clusters, and even without the run directory, nothing is said."""
    assert call("nothing-left", PVAFFINITY_RUN=tmp_path) == (0, "", "")
    assert call("nothing-left", PVAFFINITY_RUN=tmp_path / "absent") == (0, "", "")


def test_only_processes_with_our_mark_count(tmp_path, started):
    """A process is told by mark and run directory: neither another's kubelet nor another run directory's."""
    started(tmp_path / "other/clusters/pv-1")
    assert call("nothing-left", PVAFFINITY_RUN=tmp_path / "ours") == (0, "", "")
    process = started(tmp_path / "ours/clusters/pv-137")
    code, said, _ = call("nothing-left", PVAFFINITY_RUN=tmp_path / "ours")
    assert code == 1
    assert f"process {process.pid} of pv-137: " in said
    assert said.count("process ") == 1


def test_a_cluster_directory_counts(tmp_path):
    """A directory is named even if no process of it runs."""
    (tmp_path / "clusters/pv-137").mkdir(parents=True)
    code, said, _ = call("nothing-left", PVAFFINITY_RUN=tmp_path)
    assert (code, f"directory {tmp_path}/clusters/pv-137" in said) == (1, True)


def test_a_node_of_a_kind_cluster_counts(tmp_path):
    """A container is told by its cluster's name or its own; the user's clusters and other containers do not count."""
    docker = tmp_path / "docker"
    nodes = ["a pv-137-gate-on-3fa2c1", "b kind", "c pv-137-gate-on-3fa2c1-mine", "d ", "e pv-138-mine-000000"]
    nodes += [
        "f my-ci-136-gate-off-0a1b2c",
        "pvaffinity-build-0123456789ab-12-345-0a1b2c3d ",
        "g my-ci-gate-off-0a1b2c",
        "h up-0a1b2c",
    ]
    docker.write_text("#!/bin/sh\nprintf '%s\\n' " + " ".join(f"'{node}'" for node in nodes))
    docker.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    code, said, _ = call("nothing-left", PVAFFINITY_RUN=tmp_path, PATH=path)
    assert code == 1
    assert [line.split()[1] for line in said.splitlines() if "container" in line] == [
        *("a", "e", "f"),
        "pvaffinity-build-0123456789ab-12-345-0a1b2c3d",
        "h",
    ]


def junit(path, *cases):
    inner = "".join(f'<testcase classname="c" name="{name}">{child}</testcase>' for name, child in cases)
    path.write_text(f"<testsuites><testsuite>{inner}</testsuite></testsuites>")
    return path


GOOD = ("a", ""), ("b", "<skipped/>")


def test_totals_add_up(tmp_path):
    """The last line is the sum over all files, and all is well where something passed and nothing failed."""
    files = [junit(tmp_path / "one.xml", *GOOD), junit(tmp_path / "two.xml", ("c", ""), ("d", "<properties/>"))]
    code, said, _ = call("totals", *files)
    assert (code, said.splitlines()[-1]) == (0, "3 passed, 0 failed, 1 skipped")


@pytest.mark.parametrize(
    ("cases", "last"),
    [
        ([("a", ""), ("b", "<failure/>")], "1 passed, 1 failed, 0 skipped"),
        ([("a", ""), ("b", "<error/>")], "1 passed, 1 failed, 0 skipped"),
        ([("a", ""), ("b", "<failure/>"), ("b", "<error/>")], "1 passed, 1 failed, 0 skipped"),
        ([("a", ""), ("b", "<error/>"), ("b", "")], "1 passed, 1 failed, 0 skipped"),
        ([("a", "<skipped/>")], "0 passed, 0 failed, 1 skipped"),
        ([], "0 passed, 0 failed, 0 skipped"),
    ],
)
def test_totals_fail(tmp_path, cases, last):
    """A failure, an error, or nothing passed at all fails; a test that is in the file twice counts once."""
    code, said, _ = call("totals", junit(tmp_path / "run.xml", *cases))
    assert (code, said.splitlines()[-1]) == (1, last)


def test_a_run_without_a_result_is_a_failure(tmp_path):
    """A file that is not there or was cut off counts as failed, and the others still add up."""
    (tmp_path / "cut.xml").write_text("<testsuites><testsuite>")
    code, said, err = call("totals", junit(tmp_path / "one.xml", *GOOD), tmp_path / "cut.xml", tmp_path / "absent.xml")
    assert (code, said.splitlines()[-1], err) == (1, "1 passed, 2 failed, 1 skipped", "")


@pytest.mark.parametrize(
    ("gh", "code", "out", "err"),
    [
        ("echo workflow https://a.example/b/", 0, "site=https://a.example/b/\n", ""),
        ("echo legacy https://a.example/b/", 0, "", "come from a branch"),
        ("echo 'gh: Not Found (HTTP 404)' >&2; exit 1", 0, "", "has no Pages"),
        ("echo 'gh: Resource not accessible by integration (HTTP 403)' >&2; exit 1", 0, "", "has no Pages"),
        ("echo 'gh: Bad Gateway (HTTP 502)' >&2; exit 1", 1, "", "HTTP 502"),
    ],
)
def test_pages_are_published_only_where_there_are_some(tmp_path, gh, code, out, err):
    """Without Pages, or with Pages from a branch, nothing is published and nothing fails; no answer is a failure."""
    (tmp_path / "gh").write_text(f"#!/bin/sh\n{gh}\n")
    (tmp_path / "gh").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    found = call("pages-site", PATH=path, GITHUB_REPOSITORY="who/what")
    assert found[:2] == (code, out)
    assert err in found[2]
