"""CI's stand-in for runc takes out of a container's rights only what this machine does not have."""

import importlib.machinery
import importlib.util
import json
import os
import subprocess
from pathlib import Path

import pytest

WRAPPER = Path(__file__).resolve().parents[1] / ".ci" / "runc-within-bounds"
loader = importlib.machinery.SourceFileLoader("runc_within_bounds", str(WRAPPER))
wrapper = importlib.util.module_from_spec(importlib.util.spec_from_loader("runc_within_bounds", loader))
loader.exec_module(wrapper)

KINDS = ("bounding", "effective", "permitted")


@pytest.fixture
def bundle(tmp_path):
    """A bundle of a privileged container, and a runc that only shows its arguments."""
    every = [f"CAP_{name}" for name in wrapper.NAMES]
    (tmp_path / "config.json").write_text(
        json.dumps({"process": {"capabilities": dict.fromkeys(KINDS, every), "args": ["x"]}, "root": {}})
    )
    (tmp_path / "exec.json").write_text(json.dumps({"capabilities": dict.fromkeys(KINDS, every)}))
    runc = tmp_path / "runc"
    runc.write_text('#!/bin/sh\necho "$@"\n')
    runc.chmod(0o755)
    return tmp_path


def call(bundle, *arguments):
    env = {**os.environ, "RUNC": str(bundle / "runc")}
    return subprocess.run([WRAPPER, *arguments], env=env, capture_output=True, text=True, check=True).stdout


def granted(path):
    data = json.loads(path.read_text())
    return [set(names) for names in data.get("process", data)["capabilities"].values()]


def test_only_what_is_lacking_is_taken(bundle):
    """The container keeps every right inside the bounding set, and runc gets its arguments as they were."""
    left = {f"CAP_{name}" for name in wrapper.NAMES} - wrapper.lacking()
    assert call(bundle, "--root", "/r", "create", "--bundle", str(bundle), "id").split()[-1] == "id"
    assert granted(bundle / "config.json") == [left] * 3
    call(bundle, "exec", "--process", str(bundle / "exec.json"), "id")
    assert granted(bundle / "exec.json") == [left] * 3


def test_other_commands_change_nothing(bundle):
    """Everything but create, run and exec is passed on untouched."""
    before = (bundle / "config.json").read_bytes()
    assert call(bundle, "delete", "--force", "id") == "delete --force id\n"
    assert (bundle / "config.json").read_bytes() == before


def test_the_bounding_set_is_read_by_bit():
    """A capability is lacking exactly if its bit in CapBnd is zero."""
    status = dict(line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines() if "CapBnd" in line)
    zero = [bit for bit in range(len(wrapper.NAMES)) if not int(status["CapBnd"], 16) >> bit & 1]
    assert wrapper.lacking() == {f"CAP_{wrapper.NAMES[bit]}" for bit in zero}
    assert wrapper.NAMES[24] == "SYS_RESOURCE"
    assert wrapper.NAMES.index("CHECKPOINT_RESTORE") == 40
