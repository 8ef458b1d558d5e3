"""What admission makes of pods is learnt from pods, and planned with."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kfext.core.observed import as_observed, differences, observed
from kfext.model.job_state import JobState, Observed, decode_state
from kfext.model.pod import Pod
from tests.builders import Raw, job, pod, pods

OF = job().worker(2, cpu="1", gpus=1).resumed()
TOLERATED = {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}


def made(spec: Raw | None = None, *, cpu: str = "1", gated: bool = True) -> list[Pod]:
    """The pods as admission leaves them."""
    resources = {"requests": {"cpu": cpu, "nvidia.com/gpu": "1"}}
    changed = {"containers": [{"resources": resources}], **TOLERATED, **(spec or {})}
    return pods(OF.build(), gated=gated, spec=changed)


def learnt(*seen: Pod, state: JobState | None = None) -> JobState:
    """The state after these pods were seen, once it was written and read."""
    found = observed(OF.build(), seen, state or JobState())
    return decode_state(JobState(observed=found).encode(job_uid="u"))


CHANGED: dict[str, tuple[list[Pod], Mapping[str, Any], str]] = {
    "a LimitRange or a sidecar makes them larger": (
        made(cpu="3"),
        {"cpu": 3000},
        "a worker has 3 cpu instead of 1 cpu",
    ),
    "a RuntimeClass has an overhead": (
        made({"overhead": {"memory": "1Gi"}}),
        {"memory": 2**30},
        "a worker has 1 Gi memory instead of 0 bytes of memory",
    ),
    "an annotation of the namespace selects nodes": (
        made({"nodeSelector": {"pool": "x"}}),
        {"node_selector": (("pool", "x"),)},
        "a worker has another nodeSelector",
    ),
    "nothing tolerates the taint of its GPUs": (
        made({"tolerations": []}),
        {"devices": ()},
        "a worker has no toleration for nvidia.com/gpu",
    ),
}


@pytest.mark.parametrize(("seen", "want", "words"), CHANGED.values(), ids=CHANGED)
def test_a_job_is_planned_as_its_pods_were_seen(
    seen: list[Pod], want: Mapping[str, Any], words: str
) -> None:
    assert differences(OF.build(), seen, eligible=False) == words
    (group,) = as_observed(OF.build(), learnt(*seen)).groups
    for key, value in want.items():
        if key in group.requests:
            assert group.requests[key] == value
        else:
            assert getattr(group.constraints, key) == value


def test_pods_like_their_template_teach_nothing() -> None:
    assert differences(OF.build(), made(), eligible=False) == ""
    assert learnt(*made()) == JobState()


def test_a_missing_toleration_is_no_difference_where_a_node_is_eligible() -> None:
    assert differences(OF.build(), made({"tolerations": []}), eligible=True) == ""


def test_only_pods_behind_the_gate_show_what_they_require() -> None:
    assert learnt(*made({"nodeSelector": {"pool": "x"}}, gated=False)) == JobState()


def test_a_pod_beyond_a_bound_shows_nothing_as_it_was_not_read() -> None:
    (one, _) = made(cpu="3")
    assert one.constraints is not None
    beyond = replace(one, constraints=replace(one.constraints, excess="30000 containers"))
    assert learnt(beyond) == JobState()
    assert differences(OF.build(), [beyond], eligible=True) == ""


def test_the_largest_pod_of_a_type_counts() -> None:
    seen = learnt(made(cpu="3")[0], made(cpu="2")[1])
    assert seen.observed["worker"].requests["cpu"] == 3000


def test_what_was_seen_is_planned_with_once_and_for_all() -> None:
    state = learnt(*made(cpu="3"))
    once = as_observed(OF.build(), state)
    assert as_observed(once, state) == once
    assert differences(once, made(cpu="3"), eligible=True) == ""


def test_what_was_learnt_first_is_kept_when_more_is_learnt() -> None:
    first = learnt(*made({"tolerations": []}))
    second = observed(as_observed(OF.build(), first), made({"tolerations": []}, cpu="3"), first)
    assert second["worker"].untolerated
    assert second["worker"].requests["cpu"] == 3000


def test_a_template_that_is_edited_counts_again() -> None:
    state = learnt(*made(cpu="3"))
    edited = job().worker(2, cpu="2", gpus=1).resumed().build()
    assert as_observed(edited, state) == edited


def test_other_types_are_as_their_templates_say() -> None:
    of = job("TFJob").ps(1, cpu="1").worker(1, cpu="1").resumed().build()
    large = pod(of, "worker", 0, gated=True, spec={"overhead": {"cpu": "1"}})
    found = observed(of, [large, pod(of, "ps", 0, gated=True)], JobState())
    assert set(found) == {"worker"}


def test_what_is_too_long_to_remember_is_not_remembered() -> None:
    names = {f"example.com/{'x' * 50}-{number}": "1" for number in range(40)}
    seen = made({"containers": [{"resources": {"requests": names}}]})
    known = {"worker": Observed(template=1, requests={"cpu": 1, "pods": 1})}
    assert observed(OF.build(), seen, JobState(observed=known)) == known


def test_an_edited_state_cannot_be_larger_than_one_that_is_written() -> None:
    names = {f"example.com/{number}": 1 for number in range(1000)}
    written = json.dumps({"observed": {"worker": {"template": 1, "requests": names}}})
    assert decode_state(written) == JobState()
