"""One cluster for all cases, and a namespace for each; faults are repaired after each case.

The cluster is created for the session, unless KFEXT_TESTBED names a running cluster. In a parallel
run each process has a cluster, and cases that share a cluster or a set-up run in one process.
"""

import itertools
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from e2e.harness.kfext_process import Kfext
from e2e.harness.space import Space
from e2e.harness.standing import named_or_running
from e2e.testbed.cluster import Testbed

_REAL = "cases/real/"
_FAKE_NODES = 20
_numbers = itertools.count()


class GroupScheduling(LoadScopeScheduling):
    """Runs all cases on real nodes in one process, and distributes other cases by file.

    `--dist loadgroup` does not work: xdist 3.8 encodes the groups in the ids of cases, which pytest
    has ignored since 9.2. Each case would silently be a group of its own, and each process would
    make the cluster of real nodes, and every set-up that a file shares.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def group_of(nodeid: str) -> str:
    """Return the group of a case: its file, or the cluster that several files share."""
    file = nodeid.partition("::")[0]
    return _REAL if _REAL in file else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling:
    """Keep cases that share a cluster or a set-up in one process of a parallel run."""
    return GroupScheduling(config, log)


@pytest.fixture(scope="session")
def testbed() -> Iterator[Testbed]:
    """A control plane, the training-operator and fake nodes, shared by the whole session."""
    name = f"cases-{os.getpid()}"
    with named_or_running(name, fake_nodes=_FAKE_NODES, fast=True) as bed:
        yield bed


@pytest.fixture(scope="session")
def installed(testbed: Testbed) -> Iterator[Kfext]:
    """Install kfext once."""
    with Kfext.installed(testbed) as kfext:
        yield kfext


@pytest.fixture
def kfext(installed: Kfext) -> Iterator[Kfext]:
    """A working kfext; what the last case killed or broke is restored first."""
    installed.ensure()
    yield installed
    installed.proxy.heal()


@pytest.fixture
def new_space(kfext: Kfext, request: pytest.FixtureRequest) -> Iterator[Callable[..., Space]]:
    """A function that creates namespaces, which are deleted when the case ends."""
    spaces: list[Space] = []
    stem = re.sub(r"[^a-z0-9]+", "-", request.node.originalname.lower())[5:35].strip("-")

    def make(**options: object) -> Space:
        space = Space(kfext, f"{stem}-{next(_numbers)}")
        spaces.append(space)
        space.create(**options)  # type: ignore[arg-type]
        return space

    yield make
    kfext.proxy.heal()
    for space in spaces:
        space.clean()


@pytest.fixture
def space(new_space: Callable[..., Space]) -> Space:
    """A managed namespace."""
    return new_space()
