"""The sweep: pod creation moved in small steps across the moment at which a volume's update is acknowledged.

What is fired is *aimed*; what counts is *measured*: a round belongs to the step its measured offset hits, and the sweep
goes on until every step has its rounds, or a limit says that enough has been tried.
"""

from __future__ import annotations

__all__ = ["OFFSETS_MS", "sweep"]

import random
import secrets
import statistics
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

from pvaffinity.affinity import Affinity
from pvaffinity.api import MERGE_PATCH, TRANSPORT_ERRORS, Api
from pvaffinity.errors import ApiError
from pvaffinity.manifests import IMAGE
from pvaffinity.objects import Obj, Ref
from pvaffinity.races.observe import Observer, SweepError
from pvaffinity.races.record import Record, step_of
from pvaffinity.races.stage import Stage
from pvaffinity.verdicts import History, Write

OFFSETS_MS = (-30.0, -20.0, -12.0, -8.0, -6.0, -4.0, -2.0, 0.0, 2.0, 6.0, 12.0, 20.0, 30.0)
"""Creation sent, minus update acknowledged. Fine near zero: on an idle cluster the scheduler's cache is behind by a few
milliseconds only. Step 0 is "just after the acknowledgement"; negative offsets never count for it."""

_BATCH = 52  # pods at a time: a kubelet takes 110, and others may use the cluster as well
_LEAD = 0.004  # seconds between the planning of a round and its first shot


def sweep(
    api: Api,
    *,
    namespace: str,
    before: Affinity,
    after: Affinity,
    offsets_ms: Sequence[float] = OFFSETS_MS,
    rounds: int = 20,
    labels: Mapping[str, str] | None = None,
    image: str = IMAGE,
    settle_seconds: float = 20.0,
    limit_seconds: float = 240.0,
    seed: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Record:
    """Race volume updates against pod creations and record what happened; nothing is judged here.

    Each round takes a volume of its own, already bound to its claim, changes its affinity from ``before`` to ``after``
    and creates a pod that mounts it. The pods' fates are read from one watch. Everything made is deleted.

    Args:
        api: an administrator.
        namespace: exists, with its default ServiceAccount.
        before: the volumes' affinity at first.
        after: what they are changed to; some node of ``before`` must not match it.
        offsets_ms: the steps.
        rounds: how many rounds each step is to have, by measured offset.
        labels: put on every object made.
        image: of the pods; a container that stays up.
        settle_seconds: how long the last pods of a batch may take until they run or are refused.
        limit_seconds: no new batch is begun after this; steps may then be short of rounds, as the summary says.
        seed: of the order of rounds; it is in the record's notes.
        progress: told one line per batch.

    Raises:
        SweepError: the server refused an update or a pod, volumes were not bound in time, or no node could tell.
    """
    started = time.monotonic()
    race = f"race-{secrets.token_hex(3)}"
    seed = secrets.randbelow(10**6) if seed is None else seed
    stage = Stage(api, namespace, labels or {}, race, image)
    nodes = _node_labels(api, before, after)
    if not any(before.matches(labels) and not after.matches(labels) for labels in nodes.values()):
        raise SweepError(f"no node matches {before} and not {after}: there is nothing to lose in this race")
    gun = _Gun(api, after.to_dict())
    plan = _Plan(offsets_ms, rounds, random.Random(seed))
    histories: list[History] = []
    try:
        with Observer(api, namespace, stage.selector) as observer:
            while (todo := plan.next_batch()) and time.monotonic() - started < limit_seconds:
                names = [f"{race}-{len(histories) + i:04d}" for i in range(len(todo))]
                stage.prepare(names, before.to_dict())
                shots = []
                for name, aimed in zip(names, todo, strict=True):
                    update, creation = gun.fire(name, stage.pod(name), aimed)
                    shots.append((name, aimed, update, creation))
                    if update.acknowledged is not None:
                        plan.hit((creation.sent - update.acknowledged) / 1e6)
                observer.wait(names, lambda seen: seen.settled, settle_seconds)
                stored, now = stage.stored_affinities(), _node_labels(api, before, after)
                for name, aimed, update, creation in shots:
                    seen = observer.take(name)
                    histories.append(
                        History(
                            name=name,
                            aimed_ms=aimed,
                            update=update,
                            creation=creation,
                            before=before.to_dict(),
                            after=after.to_dict(),
                            stored=stored.get(name),
                            nodes=nodes,
                            binding=seen.binding,
                            events=tuple(seen.events),
                            fate=seen.fate,
                            nodes_unchanged=now == nodes,
                        )
                    )
                stage.remove_pods(names, observer)
                progress(f"race: {plan.done} of {plan.wanted} rounds, {time.monotonic() - started:.0f} s")
    finally:
        stage.clear()
    notes = {"race": race, "seed": str(seed), "before": str(before), "after": str(after)}
    return Record(tuple(offsets_ms), rounds, tuple(histories), time.monotonic() - started, notes)


class _Plan:
    """Which offsets to aim at next: those of steps that still lack rounds, in random order."""

    def __init__(self, offsets_ms: Sequence[float], rounds: int, rng: random.Random) -> None:
        self._offsets, self._rounds, self._rng = tuple(offsets_ms), rounds, rng
        self._hits: Counter[float] = Counter()
        self.wanted = rounds * len(self._offsets)

    @property
    def done(self) -> int:
        """Rounds that count."""
        return sum(min(self._hits[offset], self._rounds) for offset in self._offsets)

    def hit(self, measured_ms: float) -> None:
        """A round was fired and hit this offset."""
        step = step_of(measured_ms, self._offsets)
        if step is not None:
            self._hits[step] += 1

    def next_batch(self) -> list[float]:
        """Offsets to aim at, empty when every step has its rounds; a few more than needed, since some will miss."""
        lacking = {offset: self._rounds - self._hits[offset] for offset in self._offsets}
        todo = [offset for offset, lack in lacking.items() for _ in range(max(0, lack))]
        while 0 < len(todo) < _BATCH // 2:
            todo += todo
        self._rng.shuffle(todo)
        return todo[:_BATCH]


class _Gun:
    """Fires an update and a creation from two threads, so far apart that the wanted offset is hit."""

    def __init__(self, api: Api, after: Obj) -> None:
        self._api = api
        self._patch = {"spec": {"nodeAffinity": after}}
        self._took: deque[float] = deque([0.005], maxlen=9)  # seconds from sending an update to its acknowledgement

    def fire(self, name: str, pod: Obj, offset_ms: float) -> tuple[Write, Write]:
        """One round. Before the acknowledgement one can only aim, by how long recent updates took; after it, one waits.

        Raises:
            SweepError: the server refused one of the two.
        """
        offset, took = offset_ms / 1e3, statistics.median(self._took)
        start = time.monotonic() + _LEAD
        update_at = start + max(0.0, -offset - took)
        create_at = start + max(0.0, took + offset)
        acknowledged = threading.Event()
        results: dict[str, Write] = {}
        errors: list[ApiError] = []

        def update() -> None:
            _until(update_at)
            ref = Ref("PersistentVolume", name)
            results["update"] = _timed(lambda: self._api.patch(ref, self._patch, MERGE_PATCH).body, errors)
            acknowledged.set()

        thread = threading.Thread(target=update, name="race-update", daemon=True)
        thread.start()
        if offset < 0:
            _until(create_at)
        else:
            acknowledged.wait(60)
            _until(time.monotonic() + offset)
        results["creation"] = _timed(lambda: self._api.create(pod), errors)
        thread.join(60)
        if errors:
            raise SweepError(f"the server refused a write of round {name}: {errors[0]}") from errors[0]
        written = results.get("update", Write(time.monotonic_ns()))
        if written.acknowledged is not None:
            self._took.append((written.acknowledged - written.sent) / 1e9)
        return written, results["creation"]


def _timed(request: Callable[[], Obj], errors: list[ApiError]) -> Write:
    sent = time.monotonic_ns()
    try:
        stored = request()
    except ApiError as error:
        errors.append(error)
        return Write(sent)
    except TRANSPORT_ERRORS:
        return Write(sent)  # no answer: it may or may not have been stored, and the judge will say so
    return Write(sent, time.monotonic_ns(), int(stored["metadata"]["resourceVersion"]))


def _until(moment: float) -> None:
    left = moment - time.monotonic()
    if left > 0:
        time.sleep(left)  # the offset itself is what is under test; there is no condition to wait for


def _node_labels(api: Api, *affinities: Affinity) -> dict[str, dict[str, str]]:
    """Every node's labels, reduced to the keys that the affinities look at."""
    keys = {e.key for a in affinities for term in a.terms for e in term.expressions}
    return {
        node["metadata"]["name"]: {k: v for k, v in (node["metadata"].get("labels") or {}).items() if k in keys}
        for node in api.list("Node")
    }
