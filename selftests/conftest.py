"""Warnings of selftests are errors. Those that start a cluster can be left out with -m "not cluster"."""

import signal

import pytest


def pytest_configure():
    """Let children be interrupted, also where a shell's ``&`` or nohup has told this process to ignore SIGINT."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """Make every warning of a selftest an error."""
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("error"), append=False)
