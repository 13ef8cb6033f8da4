"""Conformance checks for mutable PersistentVolume node affinity (KEP-5381), as a library.

The library knows neither pytest nor Allure: a plain script can start a cluster, update a PersistentVolume's
``spec.nodeAffinity`` and judge what happened. The suites and fixtures of the project are built on it.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("pvaffinity")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

__all__ = ["__version__"]
