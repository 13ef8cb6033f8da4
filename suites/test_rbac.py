"""RBAC: who is denied, who is let through, and what the least privilege is. Real credentials, no impersonation.

The roles ``view``, ``edit`` and ``admin`` are those every cluster ships (k8s.io/kubernetes
plugin/pkg/auth/authorizer/rbac/bootstrappolicy): none of them has any verb on PersistentVolumes.
"""

import pytest

from pvaffinity import patches
from pvaffinity.affinity import in_region, in_zone
from pvaffinity.identities import can_i
from pvaffinity.objects import Ref
from pvaffinity.outcomes import FORBIDDEN, IMMUTABLE, Accepted, attempt
from pvaffinity.patches import Verb

pytestmark = [pytest.mark.behaviour("rbac"), pytest.mark.cluster("gate-off", "gate-on")]

ZONE_B, REGION = in_zone("us-east1-b"), in_region("us-east1")
RULE_VIOLATION = {"required": {"nodeSelectorTerms": []}}
PATCHES = (Verb.JSON_PATCH, Verb.MERGE_PATCH, Verb.STRATEGIC_MERGE_PATCH, Verb.SERVER_SIDE_APPLY)
VERBS_ON_PVS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")

kinds_of_credential = pytest.mark.parametrize("kind", ["certificate", "token"])
namespace_roles = pytest.mark.parametrize("role", [None, "view", "edit", "admin"], ids=lambda r: r or "nobody")


def persistent_volumes(*verbs, names=None):
    """One RBAC rule on PersistentVolumes."""
    rule = {"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": list(verbs)}
    return {**rule, "resourceNames": list(names)} if names else rule


def _assert_no_access(cluster, who, vol):
    """Get and every kind of update are refused with 403."""
    assert attempt(lambda: who.get(vol.pv)) == FORBIDDEN
    for verb in (Verb.PUT, *PATCHES):
        outcome = patches.update(who, vol.pv, REGION.to_dict(), verb, reader=cluster.admin)
        assert outcome == FORBIDDEN, f"{verb}: {outcome}"


@kinds_of_credential
@namespace_roles
def test_a_role_in_a_namespace_gives_no_access_to_volumes(cluster, volume, user, role, kind):
    """Nobody, view, edit and admin of the claim's namespace are refused get and every kind of update with 403."""
    vol = volume(affinity=ZONE_B)
    who = user(cluster_role=role, kind=kind)

    _assert_no_access(cluster, who, vol)
    assert vol.changes() == set()


@namespace_roles
def test_authorisation_speaks_before_validation(cluster, volume, user, role):
    """A user without the right gets 403 also for a value that validation would refuse, and for one it would not."""
    vol = volume(affinity=ZONE_B)
    who = user(cluster_role=role)

    for value in (RULE_VIOLATION, REGION.to_dict(), ZONE_B.to_dict()):
        assert patches.update(who, vol.pv, value, Verb.PUT, reader=cluster.admin) == FORBIDDEN
        assert patches.update(who, vol.pv, value, Verb.JSON_PATCH, dry_run=True, reader=cluster.admin) == FORBIDDEN


@namespace_roles
def test_self_subject_access_review_agrees_for_the_denied(user, role):
    """SelfSubjectAccessReview denies every verb on PersistentVolumes to nobody, view, edit and admin alike."""
    who = user(cluster_role=role)
    allowed = [verb for verb in VERBS_ON_PVS if can_i(who, verb, "persistentvolumes")]
    assert allowed == []


@pytest.mark.parametrize("role", ["view", "edit", "admin"])
def test_the_same_role_in_the_whole_cluster_gives_no_access_either(cluster, volume, user, role):
    """Bound by a ClusterRoleBinding, view, edit and admin have no verb on volumes either: the roles lack them."""
    vol = volume(affinity=ZONE_B)
    who = user(cluster_role=role, everywhere=True)

    _assert_no_access(cluster, who, vol)
    assert [verb for verb in VERBS_ON_PVS if can_i(who, verb, "persistentvolumes")] == []


@pytest.mark.parametrize("role", ["edit", "admin"])
def test_whoever_may_edit_claims_may_still_not_touch_volumes(cluster, volume, user, namespace, role):
    """A user who can update the claim is refused the volume it is bound to."""
    vol = volume(affinity=ZONE_B)
    who = user(cluster_role=role)

    who.patch(vol.claim.ref, {"metadata": {"annotations": {"pvaffinity.dev/edited-by": who.identity}}})
    assert can_i(who, "patch", "persistentvolumeclaims", namespace=namespace)

    assert patches.update(who, vol.pv, REGION.to_dict(), Verb.MERGE_PATCH) == FORBIDDEN
    assert not can_i(who, "patch", "persistentvolumes", name=vol.pv.name)


def allowed_outcome(cluster):
    """What validation says once RBAC has let the request through."""
    return Accepted({}) if cluster.gate_on else IMMUTABLE


@kinds_of_credential
@pytest.mark.parametrize("verb", PATCHES, ids=str)
def test_patch_on_the_one_volume_suffices(cluster, volume, user, verb, kind):
    """The verb patch on one named volume gets every kind of patch past RBAC, and nothing more; reading is denied."""
    vol, other = volume(affinity=ZONE_B, bound=False), volume(affinity=ZONE_B, bound=False)
    who = user(rules=[persistent_volumes("patch", names=[vol.pv.name])], kind=kind)

    outcome = patches.update(who, vol.pv, REGION.to_dict(), verb, reader=cluster.admin)

    assert outcome == allowed_outcome(cluster)
    assert vol.affinity() == (REGION if cluster.gate_on else ZONE_B)
    assert attempt(lambda: who.get(vol.pv)) == FORBIDDEN
    assert patches.update(who, vol.pv, REGION.to_dict(), Verb.PUT, reader=cluster.admin) == FORBIDDEN
    assert patches.update(who, other.pv, REGION.to_dict(), verb, reader=cluster.admin) == FORBIDDEN
    assert can_i(who, "patch", "persistentvolumes", name=vol.pv.name)
    assert not can_i(who, "patch", "persistentvolumes", name=other.pv.name)
    assert not can_i(who, "update", "persistentvolumes", name=vol.pv.name)


def test_update_on_the_one_volume_suffices_for_put(cluster, volume, user):
    """The verb update on one named volume gets a PUT past RBAC, and no patch."""
    vol = volume(affinity=ZONE_B, bound=False)
    who = user(rules=[persistent_volumes("update", names=[vol.pv.name])])

    assert patches.update(who, vol.pv, REGION.to_dict(), Verb.MERGE_PATCH) == FORBIDDEN
    outcome = patches.update(who, vol.pv, REGION.to_dict(), Verb.PUT, reader=cluster.admin)

    assert outcome == allowed_outcome(cluster)
    assert can_i(who, "update", "persistentvolumes", name=vol.pv.name)


@pytest.mark.requires("kubectl")
@pytest.mark.parametrize("without", ["get", "patch"])
def test_kubectl_patch_needs_get_and_patch(cluster, volume, user, tmp_path, without):
    """``kubectl patch`` reads before it writes: with get and patch it gets past RBAC, without either it is 403."""
    vol = volume(affinity=ZONE_B, bound=False)
    needed = {"get", "patch"}
    for verbs, expected in ((needed - {without}, FORBIDDEN), (needed, allowed_outcome(cluster))):
        who = user(rules=[persistent_volumes(*verbs, names=[vol.pv.name])])
        kubectl = cluster.kubectl_as(who, tmp_path / who.identity)
        outcome = patches.update(who, vol.pv, REGION.to_dict(), Verb.KUBECTL, kubectl=kubectl, reader=cluster.admin)
        assert outcome == expected, f"with {sorted(verbs)}: {outcome}"


def test_the_right_role_in_a_namespace_is_the_wrong_binding(cluster, volume, user, workspace, namespace):
    """A RoleBinding of a ClusterRole with every verb on volumes gives none: PersistentVolumes have no namespace."""
    vol = volume(affinity=ZONE_B)
    role = workspace.name("volumes")
    workspace.create({"kind": "ClusterRole", "metadata": {"name": role}, "rules": [persistent_volumes("*")]})
    who = user(cluster_role=role)

    assert attempt(lambda: who.get(vol.pv)) == FORBIDDEN
    assert patches.update(who, vol.pv, REGION.to_dict(), Verb.MERGE_PATCH) == FORBIDDEN
    assert attempt(lambda: who.get(Ref("PersistentVolume", "no-such-volume"))) == FORBIDDEN
