"""What a refusal is about: the request itself, or something that says nothing about Kubernetes' own rules.

An administrator's admission policy, webhook or quota can refuse a request of the suite's own, or of a controller's, and
no status field says that it was one of them: code and reason are those of validation (422 Invalid), of RBAC
(403 Forbidden) or of a bad request (400). Only the message tells. What each looks like:

* RBAC (k8s.io/apiserver pkg/endpoints/handlers/responsewriters/errors.go): ``persistentvolumes "x" is forbidden: User
  "u" cannot patch resource "persistentvolumes" in API group "" at the cluster scope``.
* Validation (pkg/registry/rest/update.go): ``PersistentVolume "x" is invalid: nodeAffinity: Invalid value: ...``.
* Admission: ``<resource> "x" is forbidden: `` and then one of :data:`_ADMISSION`, or a webhook's own sentence.

In other words, one of these is taken for what its code and reason say, as any other refusal.
"""

from __future__ import annotations

__all__ = ["by_admission", "no_verdict"]

import re

from pvaffinity.errors import ApiError

_ADMISSION = re.compile(
    "|".join(
        (
            r"ValidatingAdmissionPolicy '[^']*' with binding '[^']*' denied request",
            r"admission webhook \"[^\"]*\" denied the request",
            r"failed calling webhook \"",
            r"exceeded quota: |failed quota: |insufficient quota to match these scopes",
            r"violates PodSecurity \"",
            r"(?:minimum|maximum) \S+ usage per (?:Container|Pod|PersistentVolumeClaim) is ",  # LimitRange
            r"\S+ max limit to request ratio per \S+ is ",  # LimitRange
            r"unable to create new content in namespace \S+ because it is being terminated",
        )
    )
)
"""k8s.io/apiserver pkg/admission/plugin (policy/validating, webhook/errors, resourcequota), plugin/pkg/admission
(limitranger, security/podsecurity), pkg/admission/plugin/namespace/lifecycle."""

_NO_VERDICT = (401, 429, 500, 502, 503, 504)
"""The server, or a proxy before it, could not say yes or no: our credentials ended, or it was full, failing or late. So
is a 500 that comes at every try: it may well be Kubernetes' own fault, and yet it neither allowed nor refused."""


def by_admission(message: str) -> bool:
    """Whether a refusal's message, or an event's, names a policy, a webhook, a quota or the like."""
    return _ADMISSION.search(message) is not None


def no_verdict(error: ApiError) -> bool:
    """Whether an answer says nothing about what Kubernetes itself makes of a request."""
    return error.code in _NO_VERDICT or by_admission(error.message)
