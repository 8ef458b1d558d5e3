"""Half a minute of random work and random faults; `make soak` does the same for longer."""

import os

from e2e.harness.kfext_process import Kfext
from e2e.harness.standing import running_or_skipped
from e2e.soak.run import Soak, fake_programs

_SECONDS = 30.0
_NODES = 12
_SEED = 1


def test_random_work_and_random_faults_break_no_rule() -> None:
    # A separate testbed, so that no other case meets the remains of a soak.
    name = f"soak-{os.getpid()}"
    with (
        running_or_skipped(name, fast=True) as bed,
        fake_programs(bed) as programs,
        Kfext.installed(bed) as kfext,
    ):
        soak = Soak(kfext, programs, seed=_SEED, nodes=_NODES)
        wrong = soak.run(_SECONDS)
    assert not wrong, "\n".join([soak.summary(), *wrong])
    assert soak.checker.checks
