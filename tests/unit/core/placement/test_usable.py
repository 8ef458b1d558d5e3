"""How much CPU pods can use."""

import pytest

from kfext.core.placement.usable import can_burst, usable_cpu
from tests.builders import JobBuilder, job

CASES: dict[str, tuple[JobBuilder, list[int]]] = {
    "its limit": (job().worker(cpu="1", cpu_limit="3"), [3000]),
    "without a limit, what is assumed": (job().worker(cpu="1", cpu_limit=""), [4000]),
    "nothing requested, the same": (job().worker(), [4000]),
    "its request, if that is more": (job().worker(cpu="6", cpu_limit=""), [6000]),
    "its request, if that is the limit": (job().worker(cpu="1"), [1000]),
    "each for itself": (
        job().master(cpu="1").worker(2, cpu="1", cpu_limit=""),
        [1000, 4000, 4000],
    ),
    "GPUs: its request": (job().worker(cpu="1", gpus=1, cpu_limit=""), [1000]),
    "GPUs of another pod of the job: its request": (
        job().master(cpu="1", cpu_limit="").worker(cpu="2", gpus=1, cpu_limit="3"),
        [1000, 2000],
    ),
}


@pytest.mark.parametrize(("made", "want"), CASES.values(), ids=CASES)
def test_how_much_cpu_a_pod_can_use(made: JobBuilder, want: list[int]) -> None:
    members = made.members()
    assert usable_cpu(members, assumed=4000) == want
    assert can_burst(members, assumed=4000) is (
        want != [member.requests.get("cpu", 0) for member in members]
    )
