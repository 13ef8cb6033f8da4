"""No locale decides how text is read and written: files and documents may hold any letter, also where LC_ALL is C."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LEG = ROOT / "selftests" / "data" / "legs" / "results-local-1.37" / "conformance.json"


def run(*command: str, **environment: str) -> str:
    env = {**os.environ, "LC_ALL": "C", **environment}
    if "PYTHONIOENCODING" not in environment:  # tox sets it
        env.pop("PYTHONIOENCODING", None)
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, timeout=120, check=False)
    told = (done.stdout + done.stderr).decode(errors="replace")
    assert done.returncode == 0, told
    return told


@pytest.mark.parametrize("mode", ["1", "0"])
def test_a_configuration_and_its_path_may_hold_any_letter(tmp_path: Path, mode: str) -> None:
    """A kind document with letters that ASCII lacks, in its text and in its name, is read under LC_ALL=C."""
    path = tmp_path / "größe.yaml"
    path.write_text("# für Übungen – 日本\nkind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "suites/test_gate_state.py", "--collect-only", "-q"]
    told = run(*command, "--provider", "local", "--cluster-config", str(path), PYTHONUTF8=mode)
    assert "1.37-gr" in told


@pytest.mark.parametrize(
    "mode",
    [{"PYTHONUTF8": "1"}, {"PYTHONUTF8": "0"}, {"PYTHONUTF8": "0", "PYTHONIOENCODING": "utf-8"}],
    ids=["UTF-8 mode", "none", "none, in tox"],
)
def test_a_report_of_any_letters_is_written(tmp_path: Path, mode: dict[str, str]) -> None:
    """Results with such letters become a site with a history in such a directory, under LC_ALL=C, also within tox."""
    legs, site = tmp_path / "läufe", tmp_path / "übersicht"
    legs.mkdir()
    data = json.loads(LEG.read_text(encoding="utf-8"))
    data["clusters"][0]["notes"]["wo"] = "Köln – 東京"
    (legs / "conformance.json").write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")
    command = [str(shutil.which("pvaffinity", path=str(Path(sys.executable).parent)))]
    for _ in range(2):
        run(*command, "report", str(legs), "-o", str(site), "--history", str(site), **mode)
    assert "Köln – 東京" in (site / "summary.html").read_text(encoding="utf-8")
