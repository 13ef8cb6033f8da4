"""The fixture ``cluster``: whatever happens, a cluster that nobody uses any more can make room for another."""

import os
from types import SimpleNamespace

import pytest

from fixtures import clusters
from fixtures.options import PLAN
from pvaffinity.clusterconfig import load_config
from pvaffinity.errors import ApiError
from pvaffinity.providers.base import Cluster, ClusterSpec
from pvaffinity.registry import Registry
from pvaffinity.turns import AlteredError
from pvaffinity.versions import load_versions

SPEC = ClusterSpec("local", load_versions().newest, load_config("gate-on"))


class Maker:
    """A provider whose clusters are directories."""

    def check(self, spec, progress):
        """All fits."""

    def create(self, spec, name, directory, owner, progress):
        """An empty one."""
        return Cluster(name, "local", "1.37.2", spec.config.name, directory, directory / "k", None, frozenset())


@pytest.mark.parametrize("broken", [AlteredError("it was altered", ""), ApiError(403, "Forbidden", "no"), OSError()])
def test_a_cluster_that_cannot_be_looked_at_is_let_go(tmp_path, monkeypatch, broken):
    """Where the fixture fails after it has the cluster, this process does not count as its user for ever."""

    def under_test(*_, **__):
        raise broken

    monkeypatch.setattr(clusters, "ClusterUnderTest", under_test)
    registry = Registry(tmp_path / "session", tmp_path / "clusters", os.getpid(), lambda _: Maker())
    plan = SimpleNamespace(load=lambda _: None, lasting=False)
    request = SimpleNamespace(param=SPEC, config=SimpleNamespace(stash={clusters.REGISTRY: registry, PLAN: plan}))
    fixture = clusters.cluster._get_wrapped_function()(request)
    with pytest.raises((type(broken), pytest.fail.Exception)):
        next(fixture)
    assert [cluster.config for cluster in registry] == ["gate-on"]
    assert not list((tmp_path / "session" / f"{SPEC.id}.users").iterdir())
