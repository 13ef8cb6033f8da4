"""Warnings of selftests are errors. Those that start a cluster can be left out with -m "not cluster"."""

import pytest


def pytest_collection_modifyitems(items):
    """Make every warning of a selftest an error."""
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("error"), append=False)
