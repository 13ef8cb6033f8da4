"""No check judges a pod that was made before the scheduler is known to go by the update: read from the suites' text."""

import ast
from pathlib import Path

import pytest

SUITES = sorted((Path(__file__).resolve().parents[1] / "suites").glob("test_*.py"))
WRITES = {"patch", "replace", "update"}  # of an Api, of patches, of an Updater
PODS = {"pod", "bind", "strand", "heartbeat", "stateful_set"}  # what makes a pod, or has one made


def parts(path):
    """Every top-level function of a suite."""
    return [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]


def calls(function):
    return [node for node in ast.walk(function) if isinstance(node, ast.Call)]


def name_of(call):
    return getattr(call.func, "id", getattr(call.func, "attr", ""))


def refused(function):
    """Calls of ``change`` that are only compared with a refusal: nothing is updated."""
    return {
        id(node.left)
        for node in ast.walk(function)
        if isinstance(node, ast.Compare) and getattr(node.comparators[0], "id", "") in ("IMMUTABLE", "FORBIDDEN")
    }


def writes_affinity(call):
    """A write past the fixtures whose text names an affinity; what patches a node or a label does not."""
    return name_of(call) in WRITES and ("ffinity" in ast.unparse(call) or ".pv" in ast.unparse(call))


def unwaited(function):
    """Lines where an affinity is updated, in a function that has pods, by other means than ``move`` and ``send``."""
    found = calls(function)
    if not PODS & {*(name_of(call) for call in found), *(arg.arg for arg in function.args.args)}:
        return []
    fine = refused(function)
    return [
        call.lineno
        for call in found
        if (name_of(call) == "change" and id(call) not in fine)
        or (writes_affinity(call) and "label" not in ast.unparse(call))
    ]


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_no_suite_makes_a_pod_after_an_update_that_nobody_waits_for(path):
    """Beside pods, an affinity is updated by ``move``, which waits, or by ``send``, which says why nobody has to."""
    found = {function.name: unwaited(function) for function in parts(path)}
    assert not {name: lines for name, lines in found.items() if lines}


@pytest.mark.parametrize(
    "line",
    [
        "assert change(vol, wide) == Accepted({})",
        "change(vol, wide)",
        "patches.update(admin, vol.pv, wide.to_dict(), verb)",
        "cluster.admin.patch(vol.ref, {'spec': {'nodeAffinity': None}})",
    ],
)
def test_such_an_update_is_found(line):
    """The rule is no empty one: each way round the fixtures is found, and a refused change is not."""
    text = f"def test_x(pod, change):\n    assert change(vol, wide) == IMMUTABLE\n    {line}\n    pod(vol)\n"
    assert unwaited(ast.parse(text).body[0]) == [3]
