"""A cluster whose control-plane components are stopped, or run with other flags, for a while, and never for longer.

For whoever has the cluster alone (:mod:`pvaffinity.turns`); the provider needs ``Power.COMPONENT_FLAGS``.
"""

from __future__ import annotations

__all__ = ["Components"]

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from pvaffinity import turns
from pvaffinity.api import TRANSPORT_ERRORS, Api
from pvaffinity.errors import ApiError, UserError
from pvaffinity.progress import quiet
from pvaffinity.providers.base import Cluster, Provider
from pvaffinity.topology import Node
from pvaffinity.usable import await_usable
from pvaffinity.waiting import WaitError


class Components:
    """The control-plane components of one cluster.

    Args:
        provider: the cluster's.
        cluster: which one.
        api: an administrator's.
        nodes: on which the cluster must be able to run pods when a component is as configured again.
        tell: is told what is done, for a timeline.
    """

    def __init__(
        self,
        provider: Provider,
        cluster: Cluster,
        api: Api,
        nodes: Sequence[Node],
        tell: Callable[[str], None] = quiet,
    ) -> None:
        self._provider, self._cluster, self._api, self._nodes, self._tell = provider, cluster, api, nodes, tell
        self._stopped: set[str] = set()

    @contextlib.contextmanager
    def stopped(self, component: str) -> Iterator[None]:
        """While it lasts, the component does not run; afterwards it does, and the cluster is usable.

        Raises:
            UserError: it could not be stopped, or the cluster could not be restored, which then is lent to nobody. If
                something else was raised meanwhile, that goes on, and what could not be restored is a note on it.
        """
        with self._altered(component, f"{component} was stopped"):
            self._provider.stop_component(self._cluster, component)
            self._stopped.add(component)
            self._tell(f"{component} stopped")
            yield

    @contextlib.contextmanager
    def running_with(self, component: str, flags: Mapping[str, str | None]) -> Iterator[None]:
        """While it lasts, the component runs with these flags over the configured ones, and the cluster is usable.

        Afterwards it runs as configured. Flags are as in :func:`pvaffinity.flags.with_flags`.

        Raises:
            UserError: it does not run with them, or the cluster could not be restored; see :meth:`stopped`.
        """
        said = " ".join(f"--{name}={value}" if value is not None else f"no --{name}" for name, value in flags.items())
        with self._altered(component, f"{component} was started with {said}"):
            self._provider.start_component(self._cluster, component, flags)
            self._tell(f"{component} started with {said}")
            self._await_usable()
            yield

    @contextlib.contextmanager
    def _altered(self, component: str, what: str) -> Iterator[None]:
        with turns.altered(self._cluster.directory, what) as restored:
            try:
                yield
            except BaseException as error:
                try:
                    self._restore(component, what)
                    restored()
                except Exception as failure:  # noqa: BLE001 - what ended the test may be a finding: it comes first
                    error.add_note(str(failure))
                raise
            self._restore(component, what)
            restored()

    def _restore(self, component: str, what: str) -> None:
        try:
            self._provider.start_component(self._cluster, component)
            self._stopped.discard(component)
            self._tell(f"{component} started as configured")
            self._await_usable()
        except (UserError, WaitError, ApiError, *TRANSPORT_ERRORS) as error:
            why = error.what if isinstance(error, UserError) else str(error).splitlines()[0]
            detail = error.detail if isinstance(error, UserError) else str(error)
            detail = "\n".join([detail, *getattr(error, "__notes__", ())])
            raise UserError(
                f"{what}, and cluster {self._cluster.name} could not be restored: {why}",
                "no other test gets this cluster any more; look at the component's log",
                detail=detail,
            ) from error

    def _await_usable(self) -> None:
        if not self._stopped:  # without a scheduler, say, nothing could be shown
            await_usable(self._api, self._nodes)
