"""Six ways to write the same change of a volume's node affinity, each answered with an ``Outcome``.

Whatever the verb, the value asked for becomes the whole of ``spec.nodeAffinity``, so that verbs can be compared: a
merge patch also nulls what the value lacks, server-side apply takes the field over by force.
"""

from __future__ import annotations

__all__ = ["FIELD_MANAGER", "Updater", "Verb", "hand_over", "update"]

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pvaffinity.api import APPLY, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Api
from pvaffinity.errors import ApiError
from pvaffinity.kubectl import Kubectl
from pvaffinity.objects import KINDS, Obj, Ref
from pvaffinity.outcomes import Outcome, Refused, attempt, refused_as

FIELD_MANAGER = "pvaffinity"
"""The field manager of every write made here."""

_CONFLICTS = 5
"""How often a PUT is tried on a fresh read before its 409 counts as the answer."""


class Verb(StrEnum):
    """How a change is written."""

    PUT = "put"
    JSON_PATCH = "json-patch"
    MERGE_PATCH = "merge-patch"
    STRATEGIC_MERGE_PATCH = "strategic-merge-patch"
    SERVER_SIDE_APPLY = "server-side-apply"
    KUBECTL = "kubectl"


@dataclass(frozen=True)
class Updater:
    """:func:`update` for one identity: its API, its kubectl (None: no such verb), and who reads what is stored."""

    api: Api
    kubectl: Kubectl | None = None
    reader: Api | None = None

    def update(self, pv: Ref, node_affinity: Mapping[str, Any] | None, verb: Verb, *, dry_run: bool = False) -> Outcome:
        """See :func:`update`."""
        return update(self.api, pv, node_affinity, verb, dry_run=dry_run, kubectl=self.kubectl, reader=self.reader)


def update(
    api: Api,
    pv: Ref,
    node_affinity: Mapping[str, Any] | None,
    verb: Verb,
    *,
    dry_run: bool = False,
    kubectl: Kubectl | None = None,
    reader: Api | None = None,
) -> Outcome:
    """Make ``node_affinity`` the whole value of ``spec.nodeAffinity``.

    Args:
        api: who asks.
        pv: the volume.
        node_affinity: the value to write, valid or not; None clears the field.
        verb: how to write it.
        dry_run: let the server check and answer everything and store nothing.
        kubectl: needed for ``Verb.KUBECTL``; it acts as its own kubeconfig's user.
        reader: who reads the stored object, which PUT, JSON patch, kubectl and clearing by apply need first. Name an
            identity that may read when testing one that may not, else the outcome is that of the read.

    Clearing by server-side apply works only on a field that no other manager owns: where one does, the field is handed
    over first (:func:`hand_over`), a write that changes ``resourceVersion``. A dry run must not write, so it needs a
    hand-over made before.

    Raises:
        ValueError: no kubectl for ``Verb.KUBECTL``; a dry run of clearing by apply on a field not handed over.
    """
    value = None if node_affinity is None else copy.deepcopy(dict(node_affinity))
    query = {"fieldManager": FIELD_MANAGER, **({"dryRun": "All"} if dry_run else {})}
    source = reader or api
    match verb:
        case Verb.MERGE_PATCH | Verb.STRATEGIC_MERGE_PATCH:
            kind = MERGE_PATCH if verb is Verb.MERGE_PATCH else STRATEGIC_PATCH
            body = {"spec": {"nodeAffinity": _nulled(value)}}
            return attempt(lambda: api.patch(pv, body, kind, **query))
        case Verb.SERVER_SIDE_APPLY:
            return _apply(api, source, pv, value, query, dry_run=dry_run)
        case Verb.PUT:
            return _put(api, source, pv, value, query)
    try:
        operations = _operations(source.get(pv), value)
    except ApiError as error:
        return refused_as(error)
    if verb is Verb.JSON_PATCH:
        return attempt(lambda: api.patch(pv, operations, JSON_PATCH, **query))
    if kubectl is None:
        raise ValueError("the verb kubectl needs a Kubectl")
    args = ["patch", "persistentvolume", pv.name, "--type=json", "-o=json", f"--field-manager={FIELD_MANAGER}"]
    return kubectl.run(*args, f"--patch={json.dumps(operations)}", *(["--dry-run=server"] if dry_run else [])).outcome


def hand_over(api: Api, pv: Ref) -> Obj:
    """Make server-side apply by :data:`FIELD_MANAGER` the only owner of ``spec.nodeAffinity``; answers what is stored.

    Only bookkeeping (``metadata.managedFields``, ``resourceVersion``) changes, so every server accepts it. Nothing is
    written where it is so already.

    Raises:
        ApiError: the identity may not read or replace the volume.
    """
    for round_ in range(_CONFLICTS):
        stored = api.get(pv)
        owners = _owners(stored)
        if owners == {(FIELD_MANAGER, "Apply")} or "nodeAffinity" not in stored["spec"]:
            return stored
        for entry in stored["metadata"]["managedFields"]:
            entry.get("fieldsV1", {}).get("f:spec", {}).pop("f:nodeAffinity", None)
        mine: Obj = {"f:spec": {"f:nodeAffinity": {"f:required": {}}}}
        entries = [e for e in stored["metadata"]["managedFields"] if _key(e) != (FIELD_MANAGER, "Apply")]
        entry = {"manager": FIELD_MANAGER, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1"}
        stored["metadata"]["managedFields"] = [*entries, {**entry, "fieldsV1": mine}]
        try:
            return api.replace(stored, fieldManager=FIELD_MANAGER).body
        except ApiError as error:
            if error.code != 409 or round_ == _CONFLICTS - 1:
                raise
    raise AssertionError("unreachable")


def _put(api: Api, reader: Api, pv: Ref, value: Obj | None, query: Mapping[str, str]) -> Outcome:
    """Read, change, replace; a conflict (another writer came between) is tried again on a fresh read."""
    outcome: Outcome = Refused(409, "Conflict")
    for _ in range(_CONFLICTS):
        try:
            stored = reader.get(pv)
        except ApiError as error:
            return refused_as(error)
        stored["spec"].pop("nodeAffinity", None)
        if value is not None:
            stored["spec"]["nodeAffinity"] = value
        outcome = attempt(lambda whole=stored: api.replace(whole, **query))  # type: ignore[misc]
        if not (isinstance(outcome, Refused) and outcome.code == 409):
            break
    return outcome


def _apply(api: Api, reader: Api, pv: Ref, value: Obj | None, query: Mapping[str, str], *, dry_run: bool) -> Outcome:
    body: Obj = {"apiVersion": KINDS[pv.kind].api_version, "kind": pv.kind, "metadata": {"name": pv.name}}
    if value is not None:
        body["spec"] = {"nodeAffinity": _nulled(value)}
    else:
        try:
            stored = reader.get(pv)
            owned_elsewhere = "nodeAffinity" in stored["spec"] and _owners(stored) != {(FIELD_MANAGER, "Apply")}
            if owned_elsewhere and dry_run:
                raise ValueError("a dry run cannot clear by server-side apply what others own: hand_over() first")
            if owned_elsewhere:
                hand_over(api, pv)
        except ApiError as error:
            return refused_as(error)
    return attempt(lambda: api.patch(pv, body, APPLY, force="true", **query))


def _operations(stored: Obj, value: Obj | None) -> list[Obj]:
    path, there = "/spec/nodeAffinity", "nodeAffinity" in stored["spec"]
    if value is None:
        name = stored["metadata"]["name"]
        return [{"op": "remove", "path": path} if there else {"op": "test", "path": "/metadata/name", "value": name}]
    return [{"op": "replace" if there else "add", "path": path, "value": value}]


def _nulled(value: Obj | None) -> Obj | None:
    """The value with null for what it lacks, down to the lists, which merging replaces as a whole."""
    if value is None:
        return None
    required = value.get("required")
    return {**value, "required": None if required is None else {"nodeSelectorTerms": None, **required}}


def _owners(stored: Obj) -> set[tuple[str, str]]:
    entries = stored["metadata"].get("managedFields") or ()
    return {_key(e) for e in entries if "f:nodeAffinity" in e.get("fieldsV1", {}).get("f:spec", {})}


def _key(entry: Mapping[str, Any]) -> tuple[str, str]:
    return entry.get("manager", ""), entry.get("operation", "")
