"""The API server's answers to the patch that resizes a pod, under the controller's identity.

The nodes are fake, so the test acts as kubelet. The folder real/ has cases with real kubelets.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from e2e.harness.kube import Object
from e2e.harness.resizing import CONTAINER, Resizing, resizing
from e2e.harness.space import Space
from kfext import errors
from kfext.model.cpu_size import CpuSize, TrainerCpu
from kfext.model.pod import Pod
from kfext.model.qos import QoS

BURSTABLE = {"requests": {"cpu": "20m", "memory": "32Mi"}}
WITHOUT_CPU = {"requests": {"memory": "32Mi"}}
FULL = {"cpu": "500m", "memory": "32Mi"}
GUARANTEED = {"requests": FULL, "limits": FULL}
ALMOST_GUARANTEED = {**BURSTABLE, "limits": {"memory": "32Mi"}}
LIMITED = {**BURSTABLE, "limits": {"cpu": "400m", "memory": "32Mi"}}


@pytest.fixture
def resizer(space: Space) -> Iterator[Resizing]:
    """Resizes pods as the controller, which has the permission, in a namespace with a node."""
    space.nodes(1, cpu="8", memory="64Gi")
    with resizing(space.kfext.testbed, space.name) as resizer:
        yield resizer


def body(space: Space, name: str, resources: Object) -> Object:
    """Return the manifest of a pod on the node of the test."""
    (node,) = space.standing_nodes
    container = {"name": CONTAINER, "image": "none", "resources": resources}
    return {"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [container]}}


def run(space: Space, resources: Object, *, reported: bool = True) -> None:
    """Run the pod `train`. `reported`: whether kubelet reports the allocated resources."""
    path = space.path("pods", "train")
    space.kube.create(space.path("pods"), body(space, "train", resources))
    space.until(lambda: space.kube.get(path)["status"].get("phase") == "Running", "it runs")
    (main,) = space.kube.get(path)["status"]["containerStatuses"]
    main |= {"resources": resources, "allocatedResources": resources.get("requests", {})}
    if reported:
        space.kube.patch(f"{path}/status", {"status": {"containerStatuses": [main]}})


# --- what is written ------------------------------------------------------------------------------

Written = tuple[Object, CpuSize, TrainerCpu, QoS]
WRITTEN: dict[str, Written] = {
    "a limit is added, and the request stays": (
        BURSTABLE, CpuSize(150), TrainerCpu(20, 150, allocated=20), QoS.BURSTABLE
    ),
    "a request is raised, still without a limit": (
        BURSTABLE, CpuSize(request=370), TrainerCpu(370, None, allocated=20), QoS.BURSTABLE
    ),
    "a request is raised, and the limit stays": (
        LIMITED,
        CpuSize(request=370),
        TrainerCpu(370, 400, given=400, allocated=20),
        QoS.BURSTABLE,
    ),
    "a pod that requests no CPU still requests none": (
        WITHOUT_CPU, CpuSize(500), TrainerCpu(0, 500), QoS.BURSTABLE
    ),
    "limit and request of a Guaranteed pod": (
        GUARANTEED,
        CpuSize(600, 600),
        TrainerCpu(600, 600, given=500, allocated=500),
        QoS.GUARANTEED,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("resources", "size", "want", "qos"), WRITTEN.values(), ids=WRITTEN)
def test_a_resize_changes_only_what_was_requested(
    space: Space, resizer: Resizing, resources: Object, size: CpuSize, want: TrainerCpu, qos: QoS
) -> None:
    run(space, resources)
    answer = resizer.write(resizer.pod("train"), size)
    assert (answer.trainer, answer.qos) == (want, qos)
    assert (resizer.trainer("train"), resizer.pod("train").qos) == (want, qos)
    # The pod can be resized again from the answer.
    more = 390 if size.limit is None else 900
    assert resizer.write(answer, CpuSize(size.limit and more, size.request and more)).qos is qos


def test_a_quota_on_requests_does_not_prevent_a_higher_limit(
    space: Space, resizer: Resizing
) -> None:
    run(space, BURSTABLE)
    limit(space, "resourcequotas", {"hard": {"requests.cpu": "1"}})
    want = TrainerCpu(20, 5000, allocated=20)
    assert resizer.write(resizer.pod("train"), CpuSize(5000)).trainer == want


# --- what is refused ------------------------------------------------------------------------------


def limit(space: Space, plural: str, spec: Object) -> None:
    """Create a quota or LimitRange, and wait until admission enforces it."""
    path = f"/api/v1/namespaces/{space.name}/{plural}"
    space.kube.create(path, {"metadata": {"name": "bound"}, "spec": spec})
    large = body(space, "large", {"requests": {"cpu": "5"}, "limits": {"cpu": "5"}})
    dry_run = space.path("pods") + "?dryRun=All"
    space.until(lambda: not space.kube.ask("POST", dry_run, large).ok, f"{plural} are enforced")


def quota(space: Space) -> None:
    limit(space, "resourcequotas", {"hard": {"requests.cpu": "1"}})


def limit_range(space: Space) -> None:
    limit(space, "limitranges", {"limits": [{"type": "Container", "max": {"cpu": "1"}}]})


def edit(space: Space) -> None:
    space.kube.patch(space.path("pods", "train"), {"metadata": {"labels": {"a": "b"}}})


def delete(space: Space) -> None:
    path = space.path("pods", "train")
    space.kube.delete(path, grace=0)
    space.until(lambda: space.kube.find(path) is None, "the pod is gone")


def replace(space: Space) -> None:
    delete(space)
    run(space, BURSTABLE)


def nothing(space: Space) -> None:
    """Change nothing."""


@dataclass(frozen=True)
class Refusal:
    """A resize that is refused. `want` and `words`: the class of the error and part of its message.

    `final`: whether a retry is useless. `meanwhile`: what happens after the pod was read.
    """

    resources: Object
    size: CpuSize
    want: type[errors.ApiError]
    words: str
    final: bool
    meanwhile: Callable[[Space], None] = nothing


QOS = "Pod QOS Class may not change as a result of resizing"
MODIFIED = "the object has been modified"
REFUSED: dict[str, Refusal] = {
    "more requests than a quota allows": Refusal(
        GUARANTEED, CpuSize(5000, 5000), errors.Forbidden, "exceeded quota: bound", True, quota
    ),
    "a raised request that a quota does not allow": Refusal(
        BURSTABLE, CpuSize(request=5000), errors.Forbidden, "exceeded quota: bound", True, quota
    ),
    "a limit above a LimitRange's": Refusal(
        BURSTABLE, CpuSize(3000), errors.Forbidden,
        "maximum cpu usage per Container is 1, but limit is 3", True, limit_range,
    ),
    "a pod that would become Guaranteed": Refusal(
        ALMOST_GUARANTEED, CpuSize(20), errors.Invalid, QOS, True
    ),
    "a pod that its raised request would make Guaranteed": Refusal(
        LIMITED, CpuSize(request=400), errors.Invalid, QOS, True,
    ),
    "a Guaranteed pod when only its limit moves": Refusal(
        GUARANTEED, CpuSize(600), errors.Invalid, QOS, True
    ),
    "a BestEffort pod": Refusal({}, CpuSize(500), errors.Invalid, QOS, True),
    "a limit below the request": Refusal(
        BURSTABLE, CpuSize(10), errors.Invalid, "must be less than or equal to cpu limit", True
    ),
    "a request above the limit": Refusal(
        LIMITED, CpuSize(request=500), errors.Invalid, "must be less than or equal to cpu limit",
        True,
    ),
    "another client wrote to the pod meanwhile": Refusal(
        BURSTABLE, CpuSize(150), errors.Conflict, MODIFIED, False, edit
    ),
    "another pod has its name": Refusal(
        BURSTABLE, CpuSize(150), errors.Conflict, MODIFIED, False, replace
    ),
    "the pod is gone": Refusal(
        BURSTABLE, CpuSize(150), errors.NotFound, 'pods "train" not found', False, delete
    ),
}  # fmt: skip


def refusal(resizer: Resizing, pod: Pod, size: CpuSize, **more: Any) -> errors.ApiError:
    with pytest.raises(errors.ApiError) as caught:
        resizer.write(pod, size, **more)
    return caught.value


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_each_impossible_resize_raises_the_expected_error(
    space: Space, resizer: Resizing, case: Refusal
) -> None:
    run(space, case.resources)
    pod = resizer.pod("train")
    case.meanwhile(space)
    error = refusal(resizer, pod, case.size)
    assert (type(error), error.final) == (case.want, case.final), error
    assert case.words in error.message


def test_a_kubelet_that_reports_no_resources_cannot_resize(space: Space, resizer: Resizing) -> None:
    run(space, BURSTABLE, reported=False)
    error = refusal(resizer, resizer.pod("train"), CpuSize(150))
    assert (type(error), error.final) == (errors.Invalid, True)
    assert "Pod running on node without support for resize" in error.message


def test_a_missing_subresource_raises_not_served_instead_of_not_found(
    space: Space,
) -> None:
    space.nodes(1, cpu="8", memory="64Gi")
    run(space, BURSTABLE)
    bed = space.kfext.testbed
    # Without the permission, the API server would answer 403 before it looks for the subresource.
    administrator = Resizing(bed, space.name, config=bed.kubeconfig)
    pod = administrator.pod("train")
    error = refusal(administrator, pod, CpuSize(150), subresource="unknown")
    assert (type(error), error.final) == (errors.NotServed, True)
    assert error.message == "the server could not find the requested resource"


def test_without_the_component_the_controller_may_resize_nothing(space: Space) -> None:
    space.nodes(1, cpu="8", memory="64Gi")
    run(space, BURSTABLE)
    resizer = Resizing(space.kfext.testbed, space.name)
    space.until(lambda: not resizer.may_resize(), "the controller lacks the permission")
    error = refusal(resizer, resizer.pod("train"), CpuSize(150))
    assert (type(error), error.final) == (errors.Forbidden, True)
    assert 'cannot patch resource "pods/resize"' in error.message
