"""Setting the stage of a race: volumes with their bound claims, prepared in bulk, and taken away again."""

from __future__ import annotations

__all__ = ["Stage"]

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pvaffinity import manifests
from pvaffinity.api import Api
from pvaffinity.budgets import BUDGETS
from pvaffinity.objects import Obj, Ref, collection_path
from pvaffinity.races.observe import Observer, TooSlowError, await_all

_WRITERS = 6


class Stage:
    """Makes volumes, claims and pods of one race, all of them with its label.

    Args:
        api: an administrator.
        namespace: exists and is usable.
        labels: put on every object, beside the race's own.
        race: a name no other race has; object names begin with it.
        image: of the pods, which only have to stay up.
        end: when the sweep's time is over, by the monotonic clock; no wait goes on for longer than one budget after it.
    """

    def __init__(
        self, api: Api, namespace: str, labels: Mapping[str, str], race: str, image: str, end: float = math.inf
    ) -> None:
        self.api, self.namespace, self.race, self.image = api, namespace, race, image
        self._labels = {manifests.MARK: namespace, **labels, "pvaffinity.dev/race": race}
        self._end = end
        self.selector = f"pvaffinity.dev/race={race}"

    def prepare(self, names: Sequence[str], node_affinity: Mapping[str, Any]) -> None:
        """Create volumes and claims, and wait until each claim is bound to its own volume.

        A volume is reserved by its claimRef and must be Available before its claim comes, else the two controllers'
        writes may conflict and the next try is a resync away.

        Raises:
            TooSlowError: some are not bound, and none was for as long as the budget ``race-bind`` says.
        """
        self._each(names, lambda name: self._volume(name, node_affinity))
        self._await("PersistentVolume", names, "Available")
        self._each(names, lambda name: manifests.claim(Ref("PersistentVolumeClaim", name, self.namespace), name))
        self._await("PersistentVolumeClaim", names, "Bound")
        self._await("PersistentVolume", names, "Bound")

    def pod(self, name: str) -> Obj:
        """The pod that uses the volume of the same name."""
        pod = manifests.pod(Ref("Pod", name, self.namespace), [name])
        pod["spec"]["containers"][0]["image"] = self.image
        return self._labelled(pod)

    def stored_affinities(self) -> dict[str, Any]:
        """``spec.nodeAffinity`` of every volume, by name, in one list."""
        volumes = self.api.list("PersistentVolume", labels=self.selector)
        return {volume["metadata"]["name"]: volume["spec"].get("nodeAffinity") for volume in volumes}

    def remove_pods(self, names: Sequence[str], observer: Observer) -> None:
        """Delete the race's pods and wait until the named ones are gone.

        Raises:
            TooSlowError: some are still there, and none went for as long as the budget ``race-removal`` says.
        """
        seconds = BUDGETS["race-removal"].seconds
        self._delete("Pod", grace=1)
        if not observer.wait(names, lambda seen: seen.gone, seconds, self._end):
            left = [name for name in names if not observer.take(name).gone]
            some = ", ".join(left[:3])
            raise TooSlowError(
                f"{len(left)} of {len(names)} pods were still there, none had gone for {seconds:g} s or the sweep's "
                f"time was over: {some}"
            )

    def clear(self) -> None:
        """Delete everything the race made, pods first; volumes and claims go when nobody uses them any more."""
        self._delete("Pod", grace=0)
        self._delete("PersistentVolumeClaim")
        self._delete("PersistentVolume")

    def _delete(self, kind: str, grace: int | None = None) -> None:
        namespace = None if kind == "PersistentVolume" else self.namespace
        options: Obj = {"propagationPolicy": "Background"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        query = {"labelSelector": self.selector}
        self.api.request("DELETE", collection_path(kind, namespace), options, query=query, timeout=120)

    def _volume(self, name: str, node_affinity: Mapping[str, Any]) -> Obj:
        claim = Ref("PersistentVolumeClaim", name, self.namespace)
        volume = manifests.persistent_volume(name, node_affinity, mark=self.namespace, claim_ref=claim)
        volume["spec"]["hostPath"] = {"path": "/tmp"}  # there on every node, so that nothing is left behind
        return volume

    def _labelled(self, obj: Obj) -> Obj:
        obj["metadata"]["labels"] = {**obj["metadata"].get("labels", {}), **self._labels}
        return obj

    def _each(self, names: Iterable[str], build: Callable[[str], Obj]) -> None:
        with ThreadPoolExecutor(_WRITERS) as pool:
            list(pool.map(lambda name: self.api.create(self._labelled(build(name))), names))

    def _await(self, kind: str, names: Sequence[str], phase: str) -> None:
        seconds = BUDGETS["race-bind"].seconds
        namespace = None if kind == "PersistentVolume" else self.namespace

        def met(obj: Obj) -> bool:
            return bool((obj.get("status") or {}).get("phase") == phase)

        await_all(
            self.api, kind, namespace, names, met, labels=self.selector, seconds=seconds, what=phase, end=self._end
        )
