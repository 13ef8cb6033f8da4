"""What kind reads: a cluster configuration's document, with the little that a provider must add to it."""

from __future__ import annotations

__all__ = ["document_for"]

from collections.abc import Mapping
from typing import Any

import yaml

from pvaffinity.clusterconfig import ClusterConfig
from pvaffinity.engine import Engine
from pvaffinity.providers.kind_setup import NodeImage
from pvaffinity.versions import Release

_CGROUP_FIELD = (1, 31)  # the first release with KubeletConfiguration.failCgroupV1
_FORMS = ("v1beta3", "v1beta4")
"""Of kubeadm's documents; kind writes the one its release reads. Arguments are a map in the older, else a list."""
_ADDED = (
    ("controllerManager", "kube-controller-manager", "pvclaimbinder-sync-period", "1s"),
    ("controllerManager", "kube-controller-manager", "leader-elect", "false"),
    ("scheduler", "kube-scheduler", "leader-elect", "false"),
)
"""The controller that binds volumes now and then meets a conflict, and by default looks again after 15 s. And whoever
has to lead exits when the API server is away for 10 s; there is one of each, so nobody needs to."""


def document_for(config: ClusterConfig, image: NodeImage, engine: Engine, release: Release) -> str:
    """The kind document, as YAML: with a few flags of the controllers, and for an image of ours the air-gapped overlay.

    Flags that the configuration sets stay as they are.

    The overlay leaves out what would have to be pulled (kindnet, kube-proxy, CoreDNS) and lets the kubelet run on
    control groups v1, where that is what the machine has.
    """
    document = config.document
    result = {key: value for key, value in document.items() if key != "name"}
    result["kubeadmConfigPatchesJSON6902"] = [_flags(config, form) for form in _FORMS]
    if image.ours:
        networking = {"disableDefaultCNI": True, "kubeProxyMode": "none", **(document.get("networking") or {})}
        patches = list(document.get("kubeadmConfigPatches") or ())
        skipped = ["preflight", "addon/kube-proxy", "addon/coredns"]
        for form in _FORMS:
            patches.append(
                _yaml({"apiVersion": f"kubeadm.k8s.io/{form}", "kind": "InitConfiguration", "skipPhases": skipped})
            )
        if engine.cgroup == 1 and release.key[:2] >= _CGROUP_FIELD:
            patches.append(_yaml({"kind": "KubeletConfiguration", "failCgroupV1": False}))
        result |= {"networking": networking, "kubeadmConfigPatches": patches}
    return _yaml(result)


def _flags(config: ClusterConfig, form: str) -> dict[str, str]:
    """What adds the flags to a form of kubeadm's document; a merge patch would replace the list of the newer one."""
    operations: list[dict[str, Any]] = []
    filled = {section for section, *_ in _ADDED if _has_arguments(config, section, form)}
    for section, component, flag, value in _ADDED:
        if flag in config.component_args.get(component, {}):
            continue
        path, argument = f"/{section}/extraArgs", {"name": flag, "value": value}
        if section not in filled:
            first: Any = [argument] if form == "v1beta4" else {flag: value}
            operations.append({"op": "add", "path": path, "value": first})
        elif form == "v1beta4":
            operations.append({"op": "add", "path": f"{path}/-", "value": argument})
        else:
            operations.append({"op": "add", "path": f"{path}/{flag}", "value": value})
        filled.add(section)
    about = {"group": "kubeadm.k8s.io", "version": form, "kind": "ClusterConfiguration"}
    return {**about, "patch": _yaml(operations)}


def _has_arguments(config: ClusterConfig, section: str, form: str) -> bool:
    """Whether a component has arguments before ours are added; kind writes null where there is none.

    From kind itself (pkg/cluster/internal/kubeadm/config.go), which gives the controller manager one in any case, or
    from a patch of the configuration that is for this form.
    """
    if section == "controllerManager" or config.feature_gates:
        return True
    if (config.document.get("networking") or {}).get("ipFamily") == "ipv6":
        return True
    patches = [yaml.safe_load(text) for text in config.document.get("kubeadmConfigPatches") or ()]
    return any(
        (patch.get(section) or {}).get("extraArgs") and (patch.get("apiVersion") or form).endswith(form)
        for patch in patches
        if patch["kind"] == "ClusterConfiguration"
    )


def _yaml(data: Mapping[str, Any] | list[Any]) -> str:
    text: str = yaml.safe_dump(data, sort_keys=False)
    return text
