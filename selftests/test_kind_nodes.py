"""The gate is read from every component of a kind cluster, and a difference from the configuration is an error."""

import pytest
import yaml

from pvaffinity.clusterconfig import load_config
from pvaffinity.errors import UserError
from pvaffinity.providers import kind_nodes


class Server:
    """Answers for the kubelet's ConfigMap; the static pods come through the wait."""

    def __init__(self, kubelet):
        self.kubelet = kubelet

    def get(self, _ref):
        """The ConfigMap that kubeadm writes."""
        return {"data": {"kubelet": yaml.safe_dump(self.kubelet)}}


def read(monkeypatch, config, flags, kubelet):
    """What gates() says of components with these flags."""

    def until(_api, ref, *_):
        command = [ref.name, "--bind-address=0", *flags.get(ref.name.removesuffix("-cp"), [])]
        return {"spec": {"containers": [{"command": command}]}}

    monkeypatch.setattr(kind_nodes, "until", until)
    return kind_nodes.gates(Server(kubelet), load_config(config), "cp")


ON = "--feature-gates=Other=false,MutablePVNodeAffinity=true"
EVERYWHERE = {name: [ON] for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")}


def test_each_configuration_is_recognised(monkeypatch):
    """On everywhere, on in the API server alone, and left alone are told apart."""
    kubelet = {"featureGates": {"MutablePVNodeAffinity": True}}
    assert read(monkeypatch, "gate-on", EVERYWHERE, kubelet).count(" on") == 4
    alone = read(monkeypatch, "gate-apiserver-only", {"kube-apiserver": [ON]}, {})
    assert alone == "kube-apiserver on, kube-controller-manager default, kube-scheduler default, kubelet default"
    assert read(monkeypatch, "gate-off", {}, {}).count(" default") == 4


@pytest.mark.parametrize(
    "config,flags,kubelet,message",
    [
        ("gate-on", {**EVERYWHERE, "kube-scheduler": []}, {}, "kube-scheduler runs with .* default, but .* on"),
        ("gate-on", EVERYWHERE, {}, "kubelet runs with .* default, but gate-on.yaml says on"),
        ("gate-off", {"kube-apiserver": [ON]}, {}, "kube-apiserver runs with .* on, but gate-off.yaml says default"),
    ],
    ids=["scheduler", "kubelet", "apiserver"],
)  # fmt: skip
def test_a_difference_is_an_error(monkeypatch, config, flags, kubelet, message):
    """One component that runs otherwise is named, with both settings."""
    with pytest.raises(UserError, match=message):
        read(monkeypatch, config, flags, kubelet)
