"""How long each kind of wait may take, and why: a table, so that no test carries a number of its own.

Each p99 is of 520 waits in one run of the suite without *Immutability* by two workers on two cores, local provider,
Kubernetes 1.37.2, with other work on the machine; of *recover-quick* and *mount-event*, 3 and 5 waits, it is the
longest; a *control* is as quick as the slowest thing it does, a start.
"""

from __future__ import annotations

__all__ = ["BUDGETS", "Budget", "budget_of"]

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Budget:
    """One entry of the table.

    Attributes:
        name: how tests and messages call it.
        seconds: how long a wait may take.
        kind: ``standard`` where the number follows from Kubernetes itself and exceeding it is a finding; ``patience``
            where it only allows for slow machines.
        awaited: what is waited for.
        source: where the number comes from.
        p99: seconds within which 99 of 100 such waits were met (``PVAFFINITY_WAITS``, see durations): the budget is ten
            times that at least, so that running out of it on a healthy cluster is a finding.
        unmeasured: why there is no such number.
    """

    name: str
    seconds: float
    kind: Literal["standard", "patience"]
    awaited: str
    source: str
    p99: float | None = None
    unmeasured: str = ""

    def __str__(self) -> str:
        return f"{self.seconds:g} s (budget: {self.name})"


_RACE = "a sweep that is too slow is cut short, which judges nobody"

_TABLE = (
    Budget(
        "api",
        30,
        "patience",
        "a write shows in the next reads and watches",
        "etcd and watch cache: milliseconds",
        unmeasured="no wait of a check has it; a role is in force within milliseconds",
    ),
    Budget(
        "bind",
        60,
        "patience",
        "the PV controller moves a volume or claim to its phase",
        "15 s resync at its default",
        p99=0.1,
    ),
    Budget(
        "schedule",
        60,
        "standard",
        "the scheduler tries a pod, or tries it again after a volume changed",
        "retry on the event, back-off of 10 s at most, the rest where the machine stands still; far "
        "below the 5 min after which it retries without cause "
        "(kubernetes pkg/scheduler/backend/queue, DefaultPodMaxInUnschedulablePodsDuration)",
        p99=0.1,
    ),
    Budget(
        "start",
        120,
        "patience",
        "a pod is scheduled and its containers run",
        "image present; mounts are retried",
        p99=1.9,
    ),
    Budget(
        "mount-event",
        60,
        "patience",
        "the kubelet reports a refused mount",
        "first try at once, retries from 0.5 s",
        p99=0.3,
    ),
    Budget(
        "deletion", 60, "patience", "an object is deleted, finalizers and all", "grace period of 30 s at most", p99=1.5
    ),
    Budget(
        "recover-quick",
        60,
        "patience",
        "a stuck pod runs after its node's labels were put right, it was made anew or its kubelet restarted",
        "seconds where mounting had just failed; the mount back-off doubles from 0.5 s",
        p99=2.0,
    ),
    Budget(
        "recover-slow",
        300,
        "standard",
        "a stuck pod runs after its volume was put right",
        "the kubelet reads the volume again when WaitForAttachAndMount starts anew, after 2 min 3 s, and its mount "
        "back-off may add 2 min 2 s (pkg/kubelet/volumemanager, podAttachAndMountTimeout; goroutinemap)",
        unmeasured="Kubernetes' own timers, 245 s at most; the 55 s beyond are for what recover-quick allows for",
    ),
    Budget(
        "component",
        120,
        "patience",
        "a control-plane component answers healthy after a start",
        "2 s to 5 s by itself; in a node of kind its kubelet looks at static pods every 20 s at the latest, and lets "
        "the old one end first",
        unmeasured="whoever starts a component waits for it; running out judges nobody",
    ),
    Budget(
        "usable",
        180,
        "patience",
        "a cluster schedules and runs pods again after one of its components was started anew",
        "watches are tried again after 30 s at most (client-go reflector), leases of leaders end after 15 s, and a "
        "component that lost its lease is started again after 10 s to 40 s",
        p99=14.7,
    ),
    Budget(
        "heartbeat",
        1,
        "standard",
        "a container that writes to its volume about 15 times a second does so again",
        "measured: 0.13 s at most, at a load of 12 on two cores; a second writer shows when the machine stands still",
        unmeasured="a second writer is the measure: a pause that both have judges nobody",
    ),
    Budget(
        "control",
        20,
        "patience",
        "a control gets one step further, when a wait has run out (see controls)",
        "a binder that met a conflict tries again after 15 s",
        p99=1.9,
    ),
    Budget(
        "race-bind", 60, "patience", "one more claim of a race is bound", "15 s resync at its default", unmeasured=_RACE
    ),
    Budget(
        "race-settle",
        60,
        "patience",
        "one more pod of a race runs or is refused",
        "a kubelet that could not read the claim yet tries again after 10 s to 15 s; containers start one by one",
        unmeasured=_RACE,
    ),
    Budget(
        "race-removal",
        60,
        "patience",
        "one more pod of a race is gone",
        "grace period of 1 s; containers end one by one",
        unmeasured=_RACE,
    ),
    Budget(
        "race",
        600,
        "patience",
        "a sweep of 260 rounds",
        "simulated containers: 40 s to 100 s, measured; real ones: about one a second on two cores, and shots miss",
        unmeasured=_RACE,
    ),
    Budget(
        "settle",
        5,
        "patience",
        "nothing happens for a while, so something that would happen would have",
        "see never",
        unmeasured="nothing is awaited",
    ),
)

BUDGETS: Mapping[str, Budget] = {budget.name: budget for budget in _TABLE}
"""All budgets by name."""


def budget_of(value: str | float | Budget) -> Budget:
    """A budget by name, as it is, or made from a bare number of seconds.

    Raises:
        KeyError: no budget has this name.
    """
    if isinstance(value, Budget):
        return value
    if isinstance(value, str):
        return BUDGETS[value]
    return Budget("given", float(value), "patience", "what the caller waits for", "the caller")
