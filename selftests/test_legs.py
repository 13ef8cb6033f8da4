"""The legs of a CI matrix, merged: recorded ones become one report in which no result is lost."""

import contextlib
import functools
import http.server
import itertools
import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from pvaffinity.cli.report import report
from pvaffinity.errors import UserError
from pvaffinity.report import Comparison, Conformance, allure_html, compare, earlier, merge, publish
from selftests.serving import Quiet, serving

LEGS = Path(__file__).parent / "data" / "legs"
NAMES = ["results-kind-1.37", "results-local-1.35", "results-local-1.37"]
FILES = [LEGS / name / "conformance.json" for name in NAMES]


def listed(result):
    return [(c.id, b.name, t.id, t.outcome) for c in result.clusters for b in c.behaviours for t in b.tests]


def identity(result):
    """What tells an Allure result from another, as allure-pytest has it."""
    return [(p["name"], p["value"]) for p in result["parameters"] if not p.get("excluded")]


def allure_results(directory):
    return [json.loads(path.read_text()) for path in sorted(directory.rglob("*-result.json"))]


def test_no_result_is_lost():
    """The merged report has every test of every leg, as each leg has it."""
    legs = [Conformance.load(path) for path in FILES]
    assert len(legs) == 3
    assert sorted(listed(merge(FILES))) == sorted(itertools.chain(*map(listed, legs)))


@pytest.mark.parametrize("name", NAMES)
def test_a_legs_files_agree(name):
    """JUnit, Allure and the conformance result of a leg have the same tests, and they ended the same."""
    ours = listed(Conformance.load(LEGS / name / "conformance.json"))
    junit = list(ElementTree.parse(LEGS / name / "junit.xml").iter("testcase"))
    assert sorted(re.sub(r".*::", "", test) for _, _, test, _ in ours) == sorted(case.get("name") for case in junit)
    ended = Counter("passed" if not {child.tag for child in case} - {"properties"} else "other" for case in junit)
    assert ended == Counter(outcome for *_, outcome in ours)
    assert Counter(r["status"] for r in allure_results(LEGS / name)) == ended


def test_same_check_of_two_providers_counts_twice():
    """A leg of kind takes nothing from the local leg of the same release."""
    merged = merge(FILES)
    assert Counter((c.provider, c.kubernetes) for c in merged.clusters) == {
        ("local", "1.35.4"): 2,
        ("local", "1.37.2"): 2,
        ("kind", "1.37.2"): 2,
    }
    assert len(set(listed(merged))) == sum(len(listed(Conformance.load(p))) for p in FILES)


def test_providers_agree():
    """The legs of one release on two providers have the same outcome of every check they share."""
    found = compare(merge(FILES))
    assert found == Comparison(shared=12, differences=(), unshared=())


def test_history_ids_differ_between_legs():
    """Allure tells results of different legs apart; within a leg each has an id of its own."""
    ids = {name: [result["historyId"] for result in allure_results(LEGS / name)] for name in NAMES}
    assert all(ids.values())
    assert max(Counter(itertools.chain(*ids.values())).values()) == 1


def test_version_gate_and_provider_are_part_of_a_results_identity():
    """Nothing else does the telling apart: no path, no patch release, no value that changes from run to run."""
    for result in allure_results(LEGS):
        names = [name for name, _ in identity(result)]
        assert {"Kubernetes", "configuration", "provider", "case"} == set(names)
        values = dict(identity(result))
        assert re.fullmatch(r"'1\.3[57]'", values["Kubernetes"])
        assert values["provider"] in ("'local'", "'kind'")
        assert values["configuration"] in ("'gate-on'", "'gate-off'")


def test_the_page_shows_all_legs(tmp_path):
    """Every cluster of every leg is a column of the one page, and the expected leg that has none is named."""
    run = CliRunner().invoke(report, [str(LEGS), "-o", str(tmp_path / "out"), "--expect", "local"])
    assert run.exit_code == 0, run.output
    page = (tmp_path / "out/summary.html").read_text()
    for cluster in merge(FILES).clusters:
        assert f"Kubernetes {cluster.kubernetes}\n" in page
        assert f"{cluster.configuration} · {cluster.provider}" in page
    assert "No result from local 1.34 and local 1.36." in page
    assert Conformance.load(tmp_path / "out/conformance.json").missing == ("local 1.34", "local 1.36")


def test_a_missing_leg_is_never_all_well():
    """Whatever else holds, a report that lacks a leg does not."""
    result = merge(FILES, expected=[("local", "1.35"), ("kind", "1.35")])
    assert result.missing == ("kind 1.35",)
    assert not result.holds


class Files(Quiet, http.server.SimpleHTTPRequestHandler):
    """Answers with what is in a directory."""


@pytest.fixture
def served():
    """Serves directories over HTTP, as Pages do."""
    with contextlib.ExitStack() as running:

        def serve(directory):
            handler = functools.partial(Files, directory=directory)
            server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
            running.enter_context(serving(server))
            return f"http://127.0.0.1:{server.server_port}/"

        yield serve


def publish_leg(name, site, history, **options):
    return publish(merge([LEGS / name / "conformance.json"]), site, earlier(str(history)), **options)


@pytest.mark.parametrize("over_http", [True, False])
def test_history_is_kept(tmp_path, served, over_http):
    """A second publication has both runs, the newer first, each with its page and its data."""
    one, two = tmp_path / "one", tmp_path / "two"
    place = served if over_http else str
    index = publish_leg(NAMES[1], one, place(tmp_path), label="main 1")
    assert index == one / "index.html"
    text = publish_leg(NAMES[2], two, place(one), label="main 2", link="https://ci.example/2").read_text()
    runs = [run["id"] for run in json.loads((two / "history.json").read_text())["runs"]]
    assert runs == sorted((path.name for path in (two / "runs").iterdir()), reverse=True)
    assert len(runs) == 2
    assert text.index("main 2") < text.index("main 1")
    assert 'href="https://ci.example/2"' in text
    for name, run in zip(reversed(NAMES[1:]), runs, strict=True):
        assert f'href="runs/{run}/summary.html"' in text
        assert 'href="../../index.html"' in (two / f"runs/{run}/summary.html").read_text()
        assert listed(Conformance.load(two / f"runs/{run}/conformance.json")) == listed(
            Conformance.load(LEGS / name / "conformance.json")
        )
    assert listed(Conformance.load(two / "conformance.json")) == listed(merge([FILES[2]]))


def test_the_command_publishes(tmp_path):
    """``--history`` makes a site of the merged legs and what is there already, Allure results at any depth included."""
    site = str(tmp_path / "site")
    for label in ("first", "second"):
        run = CliRunner().invoke(report, [str(LEGS), "-o", site, "--history", site, "--label", label])
        assert run.exit_code == 0, run.output
    (row,) = json.loads((tmp_path / "site/history.json").read_text())["runs"]
    assert row["label"] == "second"
    assert row["tests"] == {"passed": len(listed(merge(FILES)))}


@pytest.mark.parametrize(
    "place,told",
    [
        ("htps://example.org/site", "nor one to make it in"),
        ("nosuch/site", "nor one to make it in"),
        ("", "is no directory"),
        ("file", "is no directory"),
        ("http://[", "does not give"),
    ],
)
def test_a_mistyped_place_begins_no_history(tmp_path, monkeypatch, place, told):
    """A place that cannot be a site, now or soon, is refused; nothing is written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    run = CliRunner().invoke(report, [str(LEGS), "-o", "site", "--history", place])
    assert isinstance(run.exception, UserError), run.output
    assert told in run.exception.what
    assert not (tmp_path / "site").exists()


def test_the_beginning_of_a_history_is_told(tmp_path):
    """A site without a history, or none yet, begins one, and the command says so; the second time it does not."""
    site = str(tmp_path / "site")
    told = [CliRunner().invoke(report, [str(LEGS), "-o", site, "--history", site]).output for _ in range(2)]
    assert ["this run begins one" in each for each in told] == [True, False]


def test_publishing_again_adds_no_run(tmp_path):
    """The same run published twice is one row; beyond the limit the oldest go, with their files."""
    site = tmp_path / "site"
    publish_leg(NAMES[1], site, site)
    publish_leg(NAMES[1], site, site)
    assert len(list((site / "runs").iterdir())) == 1
    publish_leg(NAMES[2], site, site, keep=1)
    (kept,) = (site / "runs").iterdir()
    assert Conformance.load(kept / "conformance.json").clusters[0].kubernetes.startswith("1.37")


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"schema": "other", "runs": []}', '{"schema": "pvaffinity-history/1", "runs": [{"id": "x"}]}',
     '{"schema": "pvaffinity-history/1", "runs": [{"id": "../x", "headline": "", "colour": "", "verdicts": {},'
     ' "tests": {}}]}'],
)  # fmt: skip
def test_a_broken_history_is_not_overwritten(tmp_path, text):
    """A history that cannot be read stops the publication; it is not begun anew."""
    (tmp_path / "history.json").write_text(text)
    with pytest.raises(UserError, match="cannot be read"):
        earlier(str(tmp_path))


def test_a_site_that_does_not_answer_is_no_empty_history(served, tmp_path):
    """No site yet is an empty history, a server that is down is not."""
    address = served(tmp_path)
    assert earlier(address).runs == ()
    with pytest.raises(UserError, match="the earlier site does not give"):
        earlier("http://127.0.0.1:9/")


def test_a_directory_of_something_else_is_left_alone(tmp_path):
    """A site is made anew, so a directory with other files is refused."""
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="no earlier site"):
        publish_leg(NAMES[0], tmp_path, tmp_path / "none")
    assert (tmp_path / "thesis.txt").exists()


def npx_has_allure():
    npx = shutil.which("npx")
    if npx is None:
        return False
    command = [npx, "--yes", "--offline", "allure@3", "--version"]
    try:
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def test_allure_merges_legs_and_keeps_the_trend(tmp_path):
    """One Allure report has the results of all legs, and each publication adds a line to its history."""
    if not npx_has_allure():
        pytest.skip("npx has no allure in its cache")
    history, ids = tmp_path / "history.jsonl", {result["historyId"] for result in allure_results(LEGS)}
    history.write_text("")
    for count in (1, 2):
        made = allure_html([LEGS / name / "allure-results" for name in NAMES], tmp_path / "out", history=history)
        assert made is not None
        lines = history.read_text().splitlines()
        assert len(lines) == count
    entry = json.loads(lines[-1])
    assert len(entry["testResults"]) == len(ids) == len(allure_results(LEGS))
