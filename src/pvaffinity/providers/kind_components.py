"""Control-plane components of a kind cluster: static pods, which their node's kubelet runs as their manifests say.

A manifest that is taken away stops its pod, one that is put there starts another. The configured one is kept beside,
and put back byte for byte. Everything happens in the node, with what every node image has: a shell, crictl, kubectl.
"""

from __future__ import annotations

__all__ = ["start", "stop"]

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from pvaffinity.budgets import BUDGETS
from pvaffinity.engine import Engine, EngineError
from pvaffinity.errors import UserError
from pvaffinity.flags import check_component, with_flags
from pvaffinity.local.daemon import reason_of
from pvaffinity.providers import kind_setup
from pvaffinity.providers.base import Cluster

_MANIFESTS = "/etc/kubernetes/manifests"
_KEPT = "/etc/kubernetes/pvaffinity"  # on the same file system, so that moving is at once and whole
_PAUSE = 0.3
"""Seconds between two looks: each is a command in the node."""
_ANYBODY = "--insecure-skip-tls-verify --username=anybody --password=none"
"""Whom everybody tells whether it is healthy; kubectl asks for a name where it is given none."""
_TAIL = "40"
_GRACE = 2  # seconds
_RUNNING, _EXITED = "CONTAINER_RUNNING", "CONTAINER_EXITED"
_HEALTH = {
    "kube-apiserver": ("6443", "/readyz"),
    "kube-controller-manager": ("10257", "/healthz"),
    "kube-scheduler": ("10259", "/readyz"),
}
"""Port, unless a flag says otherwise, and path (kubernetes cmd/kubeadm/app/phases/controlplane, the probes)."""


def stop(cluster: Cluster, component: str) -> None:
    """Stop a component in every control plane; see :meth:`pvaffinity.providers.base.Provider.stop_component`.

    Raises:
        UserError: there is no such component, it still runs when the budget is over, or the engine refused.
    """
    with _parts(cluster, component, "stopped") as parts:
        for part in parts:
            part.stop()


def start(cluster: Cluster, component: str, flags: Mapping[str, str | None]) -> None:
    """Start a component in every control plane; see :meth:`pvaffinity.providers.base.Provider.start_component`.

    Raises:
        UserError: there is no such component, it exited or is not healthy in time, or the engine refused.
    """
    with _parts(cluster, component, "started") as parts:
        for part in parts:
            part.start(flags)


@contextlib.contextmanager
def _parts(cluster: Cluster, component: str, verb: str) -> Iterator[list[_Part]]:
    """The component in each control plane; what the engine refuses meanwhile becomes an error for users."""
    check_component(component)
    engine = kind_setup.engine_of(cluster.directory)
    filters = (f"label={kind_setup.CLUSTER_LABEL}={cluster.name}", "label=io.x-k8s.kind.role=control-plane")
    listing = [word for text in filters for word in ("--filter", text)]
    fix = f"see its nodes: {engine.name} ps {' '.join(listing)}"
    try:
        nodes = engine.run("ps", *listing, "--format", "{{.Names}}").split()
        if not nodes:
            raise UserError(f"{component} cannot be {verb}: {cluster.name} has no control plane that runs", fix)
        yield [_Part(engine, node, component) for node in sorted(nodes)]
    except EngineError as error:
        raise UserError(f"{component} cannot be {verb}: {error}", fix) from error


@dataclass(frozen=True)
class _Part:
    """One component in one node."""

    engine: Engine
    node: str
    component: str

    @property
    def manifest(self) -> str:
        return f"{_MANIFESTS}/{self.component}.yaml"

    @property
    def kept(self) -> str:
        return f"{_KEPT}/{self.component}.yaml"

    def sh(self, script: str, source: bytes | None = None) -> str:
        interactive = ("--interactive",) if source is not None else ()
        return self.engine.run("exec", *interactive, self.node, "sh", "-ec", script, source=source)

    def keep(self) -> None:
        """Keep the configured manifest, once."""
        copy = f"cp -p {self.manifest} {_KEPT}/.new; mv {_KEPT}/.new {self.kept}"
        self.sh(f"mkdir -p {_KEPT}; test -e {self.kept} || {{ {copy}; }}")

    def containers(self) -> dict[str, str]:
        """The states of all containers of the component that the runtime still knows, by id, the newest first."""
        label = f"io.kubernetes.container.name={self.component}"
        text = self.engine.run("exec", self.node, "crictl", "ps", "--all", "--label", label, "--output", "json")
        found: list[dict[str, Any]] = json.loads(text).get("containers") or []
        found.sort(key=lambda container: int(container["createdAt"]), reverse=True)
        return {container["id"]: container["state"] for container in found}

    def sandboxes(self) -> list[str]:
        """The pod's sandboxes that are ready; a kubelet that has seen to a pod's end leaves none."""
        name = f"^{self.component}-{self.node}$"
        command = ("crictl", "pods", "--namespace", "^kube-system$", "--name", name, "--state", "ready", "--quiet")
        return self.engine.run("exec", self.node, *command).split()

    def end(self, containers: Iterable[str]) -> None:
        """End an API server that its kubelet is ending: it would take the whole 30 s of grace, for its watches.

        Not the others, which end at once: if the kubelet did not know yet, it would take it for a crash and back off.
        """
        ids = " ".join(containers)
        if ids and self.component == "kube-apiserver":
            self.sh(f"crictl stop --timeout {_GRACE} {ids} >/dev/null 2>&1 || true")

    def log(self, container: str) -> str:
        """The end of a container's log."""
        return self.sh(f"crictl logs --tail {_TAIL} {container} 2>&1")

    def healthy(self, command: list[str]) -> bool:
        """Whether whoever has the component's port says so."""
        port, path = _HEALTH[self.component]
        port = next((found[1] for flag in command if (found := re.match(r"--secure-port=(\d+)", flag))), port)
        access = f"--kubeconfig=/dev/null {_ANYBODY} --server=https://127.0.0.1:{port}"
        try:
            self.sh(f"kubectl {access} --request-timeout=5s get --raw {path}")
        except EngineError:
            return False
        return True

    def stop(self) -> None:
        """Take the manifest away; returns when no container runs and the kubelet has ended the whole pod.

        Before, a manifest put back would be news of nothing to it.
        """
        self.keep()
        self.sh(f"rm -f {self.manifest}")

        def gone(containers: Mapping[str, str]) -> bool:
            running = [name for name, state in containers.items() if state == _RUNNING]
            self.end(running)
            return not running and not self.sandboxes()

        self.until(gone, "still runs")

    def start(self, flags: Mapping[str, str | None]) -> None:
        """Put the manifest there, with these flags; returns when its container is healthy."""
        self.keep()
        pod = yaml.safe_load(self.sh(f"cat {self.kept}"))
        container = pod["spec"]["containers"][0]
        container["command"] = with_flags(container["command"], flags)
        # Written beside and moved: a kubelet reads whatever is there at the moment.
        if flags:
            self.sh(f"umask 077; cat > {_KEPT}/.new", yaml.safe_dump(pod, sort_keys=False).encode())
        else:
            self.sh(f"cp -p {self.kept} {_KEPT}/.new")
        before: Mapping[str, str] = {}
        changed = self.sh(f"cmp -s {_KEPT}/.new {self.manifest} || echo changed") != ""
        if changed:
            # Two at once would not do, and a kubelet that finds the one before still there looks again after 10 s only.
            self.stop()
            before = self.containers()
            self.sh(f"mv {_KEPT}/.new {self.manifest}")

        def up(containers: Mapping[str, str]) -> bool:
            new = {name: state for name, state in containers.items() if name not in before}
            for name in (name for name, state in new.items() if changed and state == _EXITED):
                with contextlib.suppress(EngineError):  # removed meanwhile: the next one says the same
                    raise self.exited(name)
            return _RUNNING in new.values() and self.healthy(container["command"])

        self.until(up, "is not healthy")

    def until(self, done: Callable[[Mapping[str, str]], bool], trouble: str) -> None:
        """Look at the containers until it is done.

        Raises:
            UserError: not within the budget.
        """
        budget = BUDGETS["component"]
        deadline = time.monotonic() + budget.seconds
        while not done(seen := self.containers()):
            if time.monotonic() > deadline:
                log = ""
                with contextlib.suppress(EngineError):
                    log = self.log(next(iter(seen))) if seen else ""
                raise UserError(
                    f"{self.component} in {self.node} {trouble} after {budget}",
                    f"see its kubelet: {self.engine.name} exec {self.node} journalctl -u kubelet",
                    detail=log,
                )
            time.sleep(_PAUSE)

    def exited(self, container: str) -> UserError:
        """What to say of a container that has exited."""
        log = self.log(container)
        reason = reason_of(log)
        fix = "correct its flags; started without any, it runs as configured"
        return UserError(f"{self.component} exited" + (f": {reason}" if reason else ""), fix, detail=log)
