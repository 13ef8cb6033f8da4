"""The sweep: pod creation moved in small steps across the moment at which a volume's update is acknowledged.

What is fired is *aimed*; what counts is *measured*: a round belongs to the step its measured offset hits, and the sweep
goes on until every step has its rounds, or a limit says that enough has been tried.
"""

from __future__ import annotations

__all__ = ["CUT_SHORT", "OFFSETS_MS", "sweep"]

import itertools
import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from pvaffinity.affinity import Affinity
from pvaffinity.api import TRANSPORT_ERRORS, Api
from pvaffinity.budgets import BUDGETS, Budget
from pvaffinity.errors import ApiError
from pvaffinity.manifests import IMAGE
from pvaffinity.races.firing import Gun, Plan
from pvaffinity.races.observe import Observer, Sighting, SweepError, TooSlowError
from pvaffinity.races.pace import Pace
from pvaffinity.races.record import Record
from pvaffinity.races.stage import Stage
from pvaffinity.verdicts import History, Write
from pvaffinity.wire import tells_nothing

OFFSETS_MS = (-30.0, -20.0, -12.0, -8.0, -6.0, -4.0, -2.0, 0.0, 2.0, 6.0, 12.0, 20.0, 30.0)
"""Creation sent, minus update acknowledged. Fine near zero: on an idle cluster the scheduler's cache is behind by a few
milliseconds only. Step 0 is "just after the acknowledgement"; negative offsets never count for it."""

CUT_SHORT = "cut short"
"""The note of a record that says why the sweep ended before every step had its rounds."""


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
    limit: Budget = BUDGETS["race"],
    seed: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Record:
    """Race volume updates against pod creations and record what happened; nothing is judged here.

    Each round takes a volume of its own, already bound to its claim, changes its affinity from ``before`` to ``after``
    and creates a pod that mounts it. The pods' fates are read from one watch. Everything made is deleted. A cluster
    that does not keep up with binding, starting or deleting, or does not answer, cuts the sweep short: the record's
    notes say so, and rounds whose end was not awaited any longer are in the record, but do not count.

    A wait is patient as long as anything comes, but for no longer than its budget after ``limit``. The last batch waits
    for its pods' fates and removal, and meanwhile for the three phases of volumes made ahead: all in all a sweep takes
    ``limit``, three budgets of a minute and the time its deletions take, at worst.

    Args:
        api: an administrator.
        namespace: exists, with its default ServiceAccount.
        before: the volumes' affinity at first.
        after: what they are changed to; some node of ``before`` must not match it.
        offsets_ms: the steps.
        rounds: how many rounds each step is to have, by measured offset.
        labels: put on every object made.
        image: of the pods; a container that stays up.
        limit: no new batch is begun after this, or after a third of it if twice as much would not do; steps may then be
            short of rounds, as the summary says.
        seed: of the order of rounds; it is in the record's notes.
        progress: told one line per batch.

    Raises:
        SweepError: the server refused an update or a pod, or no node could tell.
    """
    started = time.monotonic()
    race = f"race-{secrets.token_hex(3)}"
    seed = secrets.randbelow(10**6) if seed is None else seed
    end = started + limit.seconds
    stage = Stage(api, namespace, labels or {}, race, image, end)
    nodes = _node_labels(api, before, after)
    if not any(before.matches(labels) and not after.matches(labels) for labels in nodes.values()):
        raise SweepError(f"no node matches {before} and not {after}: there is nothing to lose in this race")
    gun, plan, pace = Gun(api, after.to_dict()), Plan(offsets_ms, rounds, random.Random(seed)), Pace()
    notes = {"race": race, "seed": str(seed), "before": str(before), "after": str(after)}
    histories: list[History] = []
    slow: list[str] = []
    serial = itertools.count()

    def ready() -> list[str]:
        """Bound volumes for the next batch, as many as the rounds still to be had will probably take."""
        names = [f"{race}-{next(serial):04d}" for _ in range(min(pace.size, plan.shots_needed()))]
        stage.prepare(names, before.to_dict())
        return names

    try:
        with Observer(api, namespace, stage.selector) as observer, ThreadPoolExecutor(1) as ahead:
            names = ready()
            while plan.lacking and time.monotonic() <= end:
                begun = time.monotonic()
                shots = [shot for name in names if (shot := _shoot(name, stage, plan, gun))]
                go_on = plan.lacking and _worthwhile(plan, pace, time.monotonic() - started, limit.seconds)
                following = ahead.submit(ready) if go_on else None  # while the pods' fates are awaited
                fired = [name for name, _, _, creation in shots if creation.acknowledged is not None]
                settle = BUDGETS["race-settle"].seconds
                observer.wait(fired, lambda seen: seen.settled, settle, end)
                sightings = {shot[0]: observer.take(shot[0]) for shot in shots}
                if missed := [name for name in fired if _open(sightings[name])]:
                    slow.append(
                        f"the end of {len(missed)} of {len(fired)} pods was not seen, no other one's for {settle:g} s "
                        f"or until the sweep's time was over: {', '.join(missed[:3])}"
                    )
                stored, unchanged = stage.stored_affinities(), _node_labels(api, before, after) == nodes
                for name, aimed, update, creation in shots:
                    seen = sightings[name]
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
                            nodes_unchanged=unchanged,
                            settled=seen.settled,
                        )
                    )
                stage.remove_pods(fired, observer)
                pace.took(len(fired), time.monotonic() - begun)
                progress(f"race: {plan.done} of {plan.wanted} rounds, {time.monotonic() - started:.0f} s; {pace}")
                if following is None or slow:
                    break
                names = following.result()
        if plan.lacking and not slow:
            took, more = time.monotonic() - started, pace.seconds_for(plan.shots_needed())
            slow.append(
                f"only {plan.done} of {plan.wanted} rounds in {took:.0f} s, and the others would have taken "
                f"another {more:.0f} s, by how many shots lately missed; allowed are {limit}"
            )
    except TooSlowError as error:
        slow.append(str(error))
    except (ApiError, *TRANSPORT_ERRORS) as error:
        if not tells_nothing(error):
            raise
        slow.append(f"the server could not answer: {error}")
    finally:
        stage.clear()
    if slow:
        notes[CUT_SHORT] = "; ".join(slow)
    notes["batches"] = str(pace)
    return Record(tuple(offsets_ms), rounds, tuple(histories), time.monotonic() - started, notes)


def _open(seen: Sighting) -> bool:
    """Whether a pod's end is still to come; one that no node can take waits for ever."""
    return not seen.settled and not seen.fate.unschedulable


def _worthwhile(plan: Plan, pace: Pace, elapsed: float, limit: float) -> bool:
    """Whether the lacking rounds may still be had in time, even if it took half as long as it lately has."""
    return elapsed < limit / 3 or elapsed + pace.seconds_for(plan.shots_needed()) / 2 < limit


def _shoot(name: str, stage: Stage, plan: Plan, gun: Gun) -> tuple[str, float, Write, Write] | None:
    """One round, unless there is none to be had any more."""
    aimed = plan.aim()
    if aimed is None:
        return None
    update, creation = gun.fire(name, stage.pod(name), aimed)
    lost = update.acknowledged is None or creation.acknowledged is None
    plan.hit(None if lost or update.acknowledged is None else (creation.sent - update.acknowledged) / 1e6)
    return name, aimed, update, creation


def _node_labels(api: Api, *affinities: Affinity) -> dict[str, dict[str, str]]:
    """Every node's labels, reduced to the keys that the affinities look at."""
    keys = {e.key for a in affinities for term in a.terms for e in term.expressions}
    return {
        node["metadata"]["name"]: {k: v for k, v in (node["metadata"].get("labels") or {}).items() if k in keys}
        for node in api.list("Node")
    }
