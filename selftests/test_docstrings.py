"""Every test of the project states its guarantee in one sentence, and every module says what it is for."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted(p for d in ("suites", "selftests", "fixtures", "src") for p in (ROOT / d).rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_tests_state_their_guarantee(path):
    """A test without a docstring, or a module that does not say what it is for, is refused."""
    tree = ast.parse(path.read_text())
    assert path.name.endswith("_pb2.py") or ast.get_docstring(tree), "the module does not say what it is for"
    silent = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not ast.get_docstring(node)
    ]
    assert not silent


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_modules_stay_small(path):
    """A module of more than 300 lines wants to be two."""
    assert path.name.endswith("_pb2.py") or len(path.read_text().splitlines()) <= 300
