"""The testbed of a test session: a running testbed that KFEXT_TESTBED names, or a new testbed.

A named testbed keeps running; at its end the session removes what it installed, so that the next
session finds the same testbed. If the machine cannot have a testbed, the tests are skipped.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
import urllib3

from e2e.harness import kfext_process
from e2e.harness.install import uninstall_kfext
from e2e.testbed import fakenodes, karpenter, lifecycle, realnodes, trainer
from e2e.testbed.api import ApiError, Manifest
from e2e.testbed.cluster import Testbed
from e2e.testbed.lifecycle import running
from e2e.testbed.preflight import Unavailable
from kfext import names

VARIABLE = "KFEXT_TESTBED"
_FAKE = f"/api/v1/nodes?labelSelector={fakenodes.LABEL}%3Dfake"
_ENDING_SECONDS = 120.0


@contextmanager
def running_or_skipped(
    name: str, *, real_nodes: int = 0, fake_nodes: int = 0, fast: bool = False
) -> Iterator[Testbed]:
    """Run a new testbed; skip the tests if the machine cannot have it."""
    try:
        with running(name, real_nodes=real_nodes, fake_nodes=fake_nodes, fast=fast) as bed:
            yield bed
    except Unavailable as missing:
        pytest.skip(f"this machine cannot have the testbed: {missing}")


@contextmanager
def trainer_or_skipped(bed: Testbed) -> Iterator[None]:
    """Run Trainer and JobSet in a testbed; skip the tests if they cannot be built here."""
    try:
        for name in (trainer.JOBSET, trainer.TRAINER):
            bed.binary(name)
    except Unavailable as missing:
        pytest.skip(str(missing))
    trainer.start(bed)
    yield
    trainer.stop(bed)


@contextmanager
def karpenter_or_skipped(bed: Testbed) -> Iterator[None]:
    """Run Karpenter in a testbed; skip the tests if it cannot be built here."""
    try:
        bed.binary(karpenter.NAME)
    except Unavailable as missing:
        pytest.skip(str(missing))
    karpenter.start(bed)
    yield
    karpenter.stop(bed)


@contextmanager
def named_or_running(
    name: str, *, real_nodes: int = 0, fake_nodes: int = 0, fast: bool = False
) -> Iterator[Testbed]:
    """Yield the testbed that KFEXT_TESTBED names, even if not `fast`, or run a new testbed."""
    existing = os.environ.get(VARIABLE)
    if existing:
        with lifecycle.terminable(), _named(existing, real_nodes, fake_nodes) as bed:
            yield bed
    else:
        with running_or_skipped(
            name, real_nodes=real_nodes, fake_nodes=fake_nodes, fast=fast
        ) as bed:
            yield bed


@contextmanager
def _named(name: str, real_nodes: int, fake_nodes: int) -> Iterator[Testbed]:
    bed, fake = _load(name)
    if missing := missing_nodes(bed.real_nodes, len(fake), real_nodes, fake_nodes):
        pytest.skip(
            f"testbed {name!r} has {bed.real_nodes} real and {len(fake)} fake nodes; "
            f"these tests need {missing}: delete it, and create it again with these"
        )
    if real_nodes:
        realnodes.renew_images(bed)
    try:
        with _without_real_nodes(bed, fake) if fake_nodes else nullcontext():
            yield bed
    finally:
        bed.api.delete(f"/api/v1/namespaces/{kfext_process.NAMESPACE}")
        uninstall_kfext(bed)
        bed.wait_for(
            lambda: not any(map(_is_terminating, bed.api.get("/api/v1/namespaces")["items"])),
            what="the namespaces of the tests to be gone",
            seconds=_ENDING_SECONDS,
        )


def _load(name: str) -> tuple[Testbed, list[Manifest]]:
    """Return the named testbed and its fake nodes; fail if it cannot be used."""
    try:
        bed = Testbed.load(name)
        fake: list[Manifest] = bed.api.get(_FAKE)["items"]
        namespaces = bed.api.get("/api/v1/namespaces")["items"]
    except (ApiError, urllib3.exceptions.HTTPError) as error:
        problem = f"testbed {name!r} does not answer: {error}"
    except (FileNotFoundError, ValueError) as error:
        problem = str(error)
    else:
        if all(namespace["metadata"]["name"] != names.NAMESPACE for namespace in namespaces):
            return bed, fake
        problem = (
            f"testbed {name!r} has kfext already, from a running or killed session, or installed "
            "by hand. Remove it (docs/remove.md), or delete the testbed and create it again"
        )
    pytest.fail(f"{VARIABLE}: {problem}", pytrace=False)


def missing_nodes(has_real: int, has_fake: int, real: int, fake: int) -> str:
    """Name what a testbed lacks of exactly `real` and at least `fake` nodes; empty if nothing."""
    wanted = []
    if real not in (0, has_real):
        wanted.append(f"{real} real nodes (--real-nodes {real})")
    if has_fake < fake:
        wanted.append(f"{fake} fake nodes (--fake-nodes {fake})")
    return " and ".join(wanted)


@contextmanager
def _without_real_nodes(bed: Testbed, fake: list[Manifest]) -> Iterator[None]:
    """Untaint the fake nodes and cordon the real nodes, as if there were no real nodes."""
    if not bed.real_nodes:
        yield
        return
    real = [f"/api/v1/nodes/{node.name}" for node in realnodes.nodes(bed)]
    cordoned = [path for path in real if not bed.api.get(path)["spec"].get("unschedulable")]
    paths = [f"/api/v1/nodes/{node['metadata']['name']}" for node in fake]
    try:
        for path in cordoned:
            bed.api.patch(path, {"spec": {"unschedulable": True}})
        for path in paths:
            _set_taints(bed, path, [])
        yield
    finally:
        for path in paths:
            _set_taints(bed, path, [fakenodes.TAINT])
        for path in cordoned:
            bed.api.patch(path, {"spec": {"unschedulable": None}})


def _set_taints(bed: Testbed, path: str, own: list[Manifest]) -> None:
    """Replace the testbed's own taints of a node; other taints stay."""
    taints = bed.api.get(path)["spec"].get("taints", [])
    others = [taint for taint in taints if taint["key"] != fakenodes.TAINT["key"]]
    bed.api.patch(path, {"spec": {"taints": [*others, *own]}})


def _is_terminating(thing: Manifest) -> bool:
    return "deletionTimestamp" in thing["metadata"]
