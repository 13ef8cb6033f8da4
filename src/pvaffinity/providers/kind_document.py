"""What kind reads: a cluster configuration's document, with the little that a provider must add to it."""

from __future__ import annotations

__all__ = ["document_for"]

from collections.abc import Mapping
from typing import Any

import yaml

from pvaffinity.engine import Engine
from pvaffinity.providers.kind_setup import NodeImage
from pvaffinity.versions import Release

_CGROUP_FIELD = (1, 31)  # the first release with KubeletConfiguration.failCgroupV1
_BINDER = "pvclaimbinder-sync-period"
_ARGUMENTS = "/controllerManager/extraArgs"


def document_for(document: Mapping[str, Any], image: NodeImage, engine: Engine, release: Release) -> str:
    """The kind document, as YAML: with a quicker volume binder, and for an image of ours the air-gapped overlay.

    The controller that binds volumes now and then meets a conflict, and by default looks again after 15 s.

    The overlay leaves out what would have to be pulled (kindnet, kube-proxy, CoreDNS) and lets the kubelet run on
    control groups v1, where that is what the machine has.
    """
    result = {key: value for key, value in document.items() if key != "name"}
    result["kubeadmConfigPatchesJSON6902"] = [*(result.get("kubeadmConfigPatchesJSON6902") or ()), *_quick_binding()]
    if image.ours:
        networking = {"disableDefaultCNI": True, "kubeProxyMode": "none", **(document.get("networking") or {})}
        patches = list(document.get("kubeadmConfigPatches") or ())
        skipped = ["preflight", "addon/kube-proxy", "addon/coredns"]
        for api in ("v1beta3", "v1beta4"):
            patches.append(
                _yaml({"apiVersion": f"kubeadm.k8s.io/{api}", "kind": "InitConfiguration", "skipPhases": skipped})
            )
        if engine.cgroup == 1 and release.key[:2] >= _CGROUP_FIELD:
            patches.append(_yaml({"kind": "KubeletConfiguration", "failCgroupV1": False}))
        result |= {"networking": networking, "kubeadmConfigPatches": patches}
    return _yaml(result)


def _quick_binding() -> list[dict[str, str]]:
    """Patches for both forms of kubeadm's arguments; a merge patch would replace the list of the newer one."""
    forms = {
        "v1beta3": {"op": "add", "path": f"{_ARGUMENTS}/{_BINDER}", "value": "1s"},
        "v1beta4": {"op": "add", "path": f"{_ARGUMENTS}/-", "value": {"name": _BINDER, "value": "1s"}},
    }
    about = {"group": "kubeadm.k8s.io", "kind": "ClusterConfiguration"}
    return [{**about, "version": version, "patch": _yaml([patch])} for version, patch in forms.items()]


def _yaml(data: Mapping[str, Any] | list[Any]) -> str:
    text: str = yaml.safe_dump(data, sort_keys=False)
    return text
