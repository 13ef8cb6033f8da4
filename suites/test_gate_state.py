"""The gate itself: the API server behaves as the configuration promises, and says so."""

import pytest

from pvaffinity import capabilities

pytestmark = [pytest.mark.behaviour("gate"), pytest.mark.cluster("gate-off", "gate-on")]


def test_the_api_server_behaves_as_the_configuration_says(cluster):
    """A dry-run of an update that every server without the gate refuses shows the state the configuration promises."""
    assert capabilities.gate_state(cluster.admin) == ("on" if cluster.gate_on else "off")


def test_metrics_agree_with_behaviour(cluster):
    """``kubernetes_feature_enabled`` names the gate as alpha and in the promised state, or not at all before 1.35."""
    assert "kubernetes_feature_enabled{" in cluster.admin.text("/metrics")
    metric = capabilities.gate_metric(cluster.admin)
    if not cluster.spec.release.has_gate:
        assert metric is None
    else:
        assert metric == capabilities.GateMetric(stage="ALPHA", enabled=cluster.gate_on)
