"""The testbed of a session: KFEXT_TESTBED names it, or it runs for the session only.

A testbed that was up before the session stays up. What the session installs is gone when it ends,
so that the next session finds the testbed as this one did. Where the machine cannot have a testbed,
the tests are skipped.
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
    """Run a testbed, or skip where the machine cannot have it; a failed start fails the tests."""
    try:
        with running(name, real_nodes=real_nodes, fake_nodes=fake_nodes, fast=fast) as bed:
            yield bed
    except Unavailable as missing:
        pytest.skip(f"this machine cannot have the testbed: {missing}")


@contextmanager
def trainer_or_skipped(bed: Testbed) -> Iterator[None]:
    """Run Trainer and JobSet in a testbed, or skip where the machine cannot have them."""
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
    """Run Karpenter in a testbed, or skip where the machine cannot have it."""
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
    """Lend the testbed that KFEXT_TESTBED names; where it names none, run one of our own.

    A testbed that is not `fast` is lent all the same: it only takes longer.
    """
    asked = os.environ.get(VARIABLE)
    if asked:
        with lifecycle.terminable(), _lent(asked, real_nodes, fake_nodes) as bed:
            yield bed
    else:
        with running_or_skipped(
            name, real_nodes=real_nodes, fake_nodes=fake_nodes, fast=fast
        ) as bed:
            yield bed


@contextmanager
def _lent(name: str, real_nodes: int, fake_nodes: int) -> Iterator[Testbed]:
    bed, fake = _found(name)
    if lacking := lacks(bed.real_nodes, len(fake), real_nodes, fake_nodes):
        pytest.skip(
            f"testbed {name!r} has {bed.real_nodes} real and {len(fake)} fake nodes; "
            f"these tests want {lacking}: take it down, and up again with these"
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
            lambda: not any(map(_ending, bed.api.get("/api/v1/namespaces")["items"])),
            what="the namespaces of the tests to be gone",
            seconds=_ENDING_SECONDS,
        )


def _found(name: str) -> tuple[Testbed, list[Manifest]]:
    """Return a testbed that may be lent, and its fake nodes."""
    try:
        bed = Testbed.load(name)
        fake: list[Manifest] = bed.api.get(_FAKE)["items"]
        namespaces = bed.api.get("/api/v1/namespaces")["items"]
    except (ApiError, urllib3.exceptions.HTTPError) as silent:
        wrong = f"testbed {name!r} does not answer: {silent}"
    except (FileNotFoundError, ValueError) as missing:
        wrong = str(missing)
    else:
        if all(namespace["metadata"]["name"] != names.NAMESPACE for namespace in namespaces):
            return bed, fake
        wrong = (
            f"kfext is in testbed {name!r} already: of a session that runs or was killed, or put "
            "there by hand. Remove it (docs/remove.md), or take the testbed down and up again"
        )
    pytest.fail(f"{VARIABLE}: {wrong}", pytrace=False)


def lacks(has_real: int, has_fake: int, real: int, fake: int) -> str:
    """Say which nodes tests want that a testbed does not have; empty if it has them.

    Tests of real nodes know how many there are; of fake ones there may be more than they want.
    """
    wanted = []
    if real not in (0, has_real):
        wanted.append(f"{real} real nodes (--real-nodes {real})")
    if has_fake < fake:
        wanted.append(f"{fake} fake nodes (--fake-nodes {fake})")
    return " and ".join(wanted)


@contextmanager
def _without_real_nodes(bed: Testbed, fake: list[Manifest]) -> Iterator[None]:
    """Open the fake nodes to all pods and close the real ones, as if there were none of these."""
    if not bed.real_nodes:
        yield
        return
    real = [f"/api/v1/nodes/{node.name}" for node in realnodes.nodes(bed)]
    closed = [path for path in real if not bed.api.get(path)["spec"].get("unschedulable")]
    paths = [f"/api/v1/nodes/{node['metadata']['name']}" for node in fake]
    try:
        for path in closed:
            bed.api.patch(path, {"spec": {"unschedulable": True}})
        for path in paths:
            _set_taints(bed, path, [])
        yield
    finally:
        for path in paths:
            _set_taints(bed, path, [fakenodes.TAINT])
        for path in closed:
            bed.api.patch(path, {"spec": {"unschedulable": None}})


def _set_taints(bed: Testbed, path: str, own: list[Manifest]) -> None:
    """Have a node bear these of the testbed's own taints; others stay."""
    taints = bed.api.get(path)["spec"].get("taints", [])
    others = [taint for taint in taints if taint["key"] != fakenodes.TAINT["key"]]
    bed.api.patch(path, {"spec": {"taints": [*others, *own]}})


def _ending(thing: Manifest) -> bool:
    return "deletionTimestamp" in thing["metadata"]
