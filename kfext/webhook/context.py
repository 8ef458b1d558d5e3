"""The context of reviews, kept fresh by watches, so that no review waits for the API server."""

import asyncio
import time

from kfext.core.admission.review import ReviewContext
from kfext.kube import paths
from kfext.kube.client import Client
from kfext.kube.informer import Backoff, Informer
from kfext.kube.lease import LeaseRecord, LeaseWatch, decode_lease
from kfext.kube.wire import decode_namespace, read_whole
from kfext.model.namespace import Namespace
from kfext.model.policy import parse_policy
from kfext.names import LEASE, NAMESPACE

_CATCH_UP_SECONDS = 1.0
_SILENCE_SECONDS, _LONGEST_BACK_OFF_SECONDS = 10.0, 2.0
"""For the watch of the Lease, which changes every 2 s while a controller lives. kfext must notice a
dead watch well before the Lease counts as old."""


class WatchedContext:
    """The cluster as the webhook sees it; `run` keeps it fresh."""

    def __init__(self, client: Client) -> None:
        self._changed = asyncio.Event()
        self._lease = LeaseWatch()
        self._namespaces = Informer(
            client, paths.namespaces(), decode=decode_namespace, on_change=self._wake
        )
        self._policies = Informer(client, paths.policies(), decode=read_whole(parse_policy))
        self._leases = Informer(
            client,
            paths.leases(NAMESPACE),
            decode=decode_lease,
            on_change=self._renewed,
            selectors={"fieldSelector": f"metadata.name={LEASE}"},
            silence_seconds=_SILENCE_SECONDS,
            backoff=Backoff(longest=_LONGEST_BACK_OFF_SECONDS),
        )

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in (self._namespaces, self._policies, self._leases):
                tasks.create_task(informer.run())

    def missing(self) -> str | None:
        """Return the names of the collections that are not read yet, or None once all are."""
        informers = {
            "namespaces": self._namespaces.synced,
            "TrainingPolicies": self._policies.synced,
            "the controller's Lease": self._leases.synced,
        }
        return ", ".join(name for name, synced in informers.items() if not synced.is_set()) or None

    def controller_alive(self) -> bool:
        """Return whether a controller is alive to handle the jobs that the webhook holds."""
        return self._lease.fresh(monotonic=time.monotonic())

    async def context_of(self, namespace: str) -> ReviewContext | None:
        """Return the context of a review in a namespace, or None before it is read.

        The API server sends reviews only for managed namespaces. If kfext's copy of the namespace
        lacks the label, the copy is outdated, so the review waits up to a second for it.
        """
        deadline = time.monotonic() + _CATCH_UP_SECONDS
        while not (context := self._read(namespace)) or not context.namespace.managed:
            changed = self._changed
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await changed.wait()
            except TimeoutError:
                break
        return context

    def _read(self, namespace: str) -> ReviewContext | None:
        stored = self._namespaces.store.by_name(namespace)
        if stored is None or self.missing():
            return None
        return ReviewContext(
            namespace=stored,
            policies=tuple(self._policies.store),
            controller_alive=self.controller_alive(),
            kinds=next((lease.kinds for lease in self._leases.store), None),
        )

    def _wake(self, old: Namespace | None, new: Namespace | None) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _renewed(self, old: LeaseRecord | None, new: LeaseRecord | None) -> None:
        renewed = new.renewed if new else None
        self._lease.observe(renewed, wall=time.time(), monotonic=time.monotonic())
