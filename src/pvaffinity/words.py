"""The messages of Kubernetes that checks read, as regular expressions; docs/messages.md says which check reads which.

No verdict hangs on them. In these words a message saves a proof; in others the same is proven by a control.
"""

from __future__ import annotations

__all__ = ["AFFINITY_CHECK", "AUTHORISER", "UNBOUND", "VOLUME_AFFINITY"]

VOLUME_AFFINITY = r"had volume node affinity conflict|didn't match PersistentVolume's node affinity"
"""What the scheduler says of nodes that a volume's affinity excludes, in older and (1.34 to 1.37) newer words."""

UNBOUND = r"unbound immediate PersistentVolumeClaims|persistentvolumeclaim \"[^\"]*\" not found"
"""What it says while its caches lag behind a new claim: it tries the pod again as soon as it has seen the binding."""

AFFINITY_CHECK = r"NodeAffinity check failed for volume .*no matching NodeSelectorTerms"
"""What a kubelet up to 1.37 says of a volume that its node may not have (pkg/volume/util/operationexecutor)."""

AUTHORISER = r"no relationship found between node"
"""What it says while the API server's Node authoriser does not know yet that the pod is the node's: it tries again."""
