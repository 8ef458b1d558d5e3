"""Reviews over TLS: each is answered, and no request ends the process."""

import asyncio
from dataclasses import replace
from typing import Any

import jsonpatch
import orjson
import pytest

from kfext import names
from kfext.core.admission.review import ReviewContext
from kfext.model.namespace import Namespace
from kfext.webhook.review import LIMIT, MAX_VALUES
from tests.unit.objects import job, pod, replica

from .conftest import MANAGED, Service, review

JOB, POD = "/mutate-job", "/mutate-pod"
NOT_REVIEWS: dict[str, tuple[bytes, int, str]] = {
    "not JSON": (b"hello", 400, "not JSON"),
    "empty": (b"", 400, "not JSON"),
    "half of a review": (orjson.dumps(review(job()))[:200], 400, "not JSON"),
    "not UTF-8": (b'{"kind": "\xff\xfe"}', 400, "not"),
    "brackets that never close": (b"[" * 100_000, 400, "not"),
    "objects that never end": (b'{"request":{"uid":"u","object":' * 50_000, 400, "not"),
    "an object that is no review": (orjson.dumps(job()), 400, "its kind is 'PyTorchJob'"),
    "a list": (b"[]", 400, "not an AdmissionReview"),
    "a review of an older version": (
        orjson.dumps({**review(job()), "apiVersion": "admission.k8s.io/v1beta1"}),
        400,
        "only admission.k8s.io/v1",
    ),
    "a review without a request": (
        orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}),
        400,
        "no request",
    ),
    "a request without uid": (orjson.dumps(review(job(), uid="")), 400, "uid"),
    "a request with a number as uid": (orjson.dumps(review(job(), uid=3)), 400, "uid"),
    "a body beyond the limit": (
        orjson.dumps(review(job(annotations={"x": "y" * LIMIT}))),
        413,
        str(LIMIT),
    ),
}


@pytest.mark.parametrize(("body", "status", "reason"), NOT_REVIEWS.values(), ids=NOT_REVIEWS)
@pytest.mark.parametrize("path", [JOB, POD])
async def test_a_body_that_is_not_a_review_gets_4xx_with_a_reason(
    service: Service, path: str, body: bytes, *, status: int, reason: str
) -> None:
    code, text = await service.post(path, body)
    assert code == status
    assert reason in text.decode()
    assert service.count(kind=path.removeprefix("/mutate-"), outcome="rejected") == 1
    # The process still answers.
    assert (await service.review(POD, pod()))["patch"]


async def test_other_paths_and_methods_are_refused(service: Service) -> None:
    assert (await service.post("/", b"{}"))[0] == 404
    async with service.session.get(service.url + JOB) as response:
        assert response.status == 405


async def test_a_job_is_suspended(service: Service) -> None:
    raw = job()
    response = await service.review(JOB, raw)
    assert response["uid"] == "review-1"
    assert response["allowed"] is True
    after = jsonpatch.apply_patch(raw, response["patch"])
    assert after["spec"]["runPolicy"] == {"suspend": True}
    assert service.count(kind="job", outcome="patched") == 1


async def test_a_pod_is_gated(service: Service) -> None:
    response = await service.review(POD, pod())
    assert response["patch"][0]["value"] == [{"name": names.GATE}]
    assert service.count(kind="pod", outcome="patched") == 1


async def test_an_object_that_needs_no_patch_is_admitted_unchanged(service: Service) -> None:
    response = await service.review(POD, {"metadata": {}, "spec": {}})
    assert response == {"uid": "review-1", "allowed": True}
    assert service.count(kind="pod", outcome="unchanged") == 1


async def test_a_malformed_setting_is_refused_with_a_message(service: Service) -> None:
    response = await service.review(JOB, job(annotations={names.COLOCATION: "always"}))
    assert response["allowed"] is False
    assert "patch" not in response
    assert response["status"]["code"] == 422
    assert (
        "'always' is not allowed; allowed: preferred, required, off"
        in (response["status"]["message"])
    )
    assert service.count(kind="job", outcome="refused") == 1


async def test_warnings_fit_the_limits_of_the_api_server(service: Service) -> None:
    response = await service.review(JOB, job(annotations={"kfext.dev/" + "x" * 400: "1"}))
    assert response["allowed"]
    assert len(response["warnings"]) == 1
    assert len(response["warnings"][0]) <= 256


@pytest.mark.parametrize("path", [JOB, POD])
async def test_X1_dry_run_gets_the_same_answer(service: Service, path: str) -> None:
    raw = job() if path == JOB else pod()
    assert await service.review(path, raw, dryRun=True) == await service.review(path, raw)


@pytest.mark.parametrize("path", [JOB, POD])
async def test_X1_an_error_of_kfext_admits_the_object_with_a_warning(
    service: Service, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    service.known.error = ZeroDivisionError("planted")
    response = await service.review(path, job())
    assert response["allowed"] is True
    assert "patch" not in response
    assert "failed" in response["warnings"][0]
    assert service.count(kind=path.removeprefix("/mutate-"), outcome="failed") == 1


UNKNOWN: dict[str, tuple[ReviewContext | None, str]] = {
    "the namespace is not read yet": (None, "has not read this namespace"),
    "no controller is alive": (replace(MANAGED, controller_alive=False), "plain Kubernetes"),
}


@pytest.mark.parametrize(("context", "warning"), UNKNOWN.values(), ids=UNKNOWN)
async def test_X1_a_job_that_cannot_be_handled_starts_as_on_plain_kubernetes(
    service: Service, context: ReviewContext | None, warning: str
) -> None:
    service.known.context = context
    response = await service.review(JOB, job())
    assert response["allowed"] is True
    assert warning in response["warnings"][0]
    assert not [op for op in response.get("patch", ()) if "suspend" in str(op)]


async def test_many_reviews_at_once_get_their_own_answers(service: Service) -> None:
    async def send(number: int) -> Any:
        raw = job() if number % 2 else pod()
        path = JOB if number % 2 else POD
        return await service.review(path, raw, uid=f"review-{number}")

    answers = await asyncio.gather(*map(send, range(300)))
    assert [answer["uid"] for answer in answers] == [f"review-{i}" for i in range(300)]
    # The patch of a job has more operations than the patch of a pod.
    assert [len(answer["patch"]) > 2 for answer in answers] == [bool(i % 2) for i in range(300)]
    assert service.count(kind="job", outcome="patched") == 150


async def test_a_review_of_a_large_job_is_answered(service: Service) -> None:
    env = [{"name": f"V{i}", "value": "x" * 1000} for i in range(700)]
    specs = {
        "Worker": {
            "replicas": 500,
            "template": {"spec": {"containers": [{"name": "pytorch", "env": env}]}},
        }
    }
    response = await service.review(JOB, job(specs=specs))
    assert response["patch"]


JOB_SHARING, POD_SHARING = "/mutate-job-sharing", "/mutate-pod-sharing"
SHARE = {names.GPU_SHARE: "0.5"}
ONE_GPU = {"name": "pytorch", "resources": {"limits": {names.NATIVE_GPU: "1"}}}


def sharing_job(**fields: Any) -> Any:
    return job(annotations=SHARE, specs={"Worker": replica(1, containers=[ONE_GPU])}, **fields)


def sharing_pod(**spec: Any) -> Any:
    annotations = {**SHARE, names.GPU_SLOTS: "50@0"}
    labels = {names.JOB_NAME: "train", names.REPLICA_TYPE: "worker", names.REPLICA_INDEX: "0"}
    fields = {"containers": [ONE_GPU], **spec}
    return pod(annotations=annotations, labels=labels, spec=fields)


SHARING = {JOB_SHARING: sharing_job, POD_SHARING: sharing_pod}
PLAIN = {JOB_SHARING: JOB, POD_SHARING: POD}


def is_refused(response: Any) -> bool:
    return response["allowed"] is False and response["status"]["code"] == 422


@pytest.mark.parametrize("path", SHARING)
async def test_an_object_that_shares_a_gpu_is_patched_on_its_own_route(
    service: Service, path: str
) -> None:
    service.known.alive = False
    response = await service.review(path, SHARING[path]())
    assert response["allowed"] is True
    assert response["patch"]
    kind = path.split("-")[1]
    assert service.count(kind=kind, outcome="patched") == 1


@pytest.mark.parametrize("path", SHARING)
async def test_an_error_of_kfext_refuses_only_objects_that_share_a_gpu(
    service: Service, path: str
) -> None:
    service.known.error = ZeroDivisionError("planted")
    raw = SHARING[path]()
    response = await service.review(path, raw)
    assert is_refused(response)
    assert "cannot review this object now" in response["status"]["message"]
    assert service.count(kind=path.split("-")[1], outcome="failed") == 1
    assert (await service.review(PLAIN[path], raw))["allowed"] is True


async def test_a_job_that_shares_gpus_is_refused_while_its_namespace_is_not_read_yet(
    service: Service,
) -> None:
    service.known.context = None
    assert is_refused(await service.review(JOB_SHARING, sharing_job()))
    assert service.count(kind="job", outcome="refused") == 1
    assert (await service.review(JOB, sharing_job()))["allowed"] is True


async def test_a_job_that_shares_gpus_is_refused_while_its_namespace_may_be_outdated(
    service: Service,
) -> None:
    service.known.context = replace(MANAGED, namespace=Namespace(""))
    assert is_refused(await service.review(JOB_SHARING, sharing_job()))
    assert (await service.review(JOB, sharing_job()))["allowed"] is True


async def test_a_job_that_shares_gpus_is_held_even_while_no_controller_is_alive(
    service: Service,
) -> None:
    service.known.context = replace(MANAGED, controller_alive=False)
    raw = sharing_job()
    response = await service.review(JOB_SHARING, raw)
    assert jsonpatch.apply_patch(raw, response["patch"])["spec"]["runPolicy"] == {"suspend": True}


@pytest.mark.parametrize("path", SHARING)
async def test_an_object_with_too_many_values_is_refused_if_it_shares_a_gpu(
    service: Service, path: str
) -> None:
    env: list[Any] = [{}] * (MAX_VALUES + 1)
    spec = {"containers": [{**ONE_GPU, "env": env}]}
    raw = sharing_job(run_policy={"x": env}) if path == JOB_SHARING else sharing_pod(**spec)
    response = await service.review(path, raw)
    assert is_refused(response)
    assert "does not handle this" in response["status"]["message"]
    assert (await service.review(PLAIN[path], raw))["allowed"] is True


@pytest.mark.parametrize(("body", "status", "reason"), NOT_REVIEWS.values(), ids=NOT_REVIEWS)
@pytest.mark.parametrize("path", SHARING)
async def test_on_the_routes_of_gpu_sharing_a_body_that_is_not_a_review_admits_nothing(
    service: Service, path: str, body: bytes, *, status: int, reason: str
) -> None:
    code, text = await service.post(path, body)
    assert code == status  # so the API server refuses the object
    assert reason in text.decode()


@pytest.mark.parametrize("path", SHARING)
async def test_an_object_that_cannot_share_a_gpu_is_refused(service: Service, path: str) -> None:
    two_gpus = {**ONE_GPU, "resources": {"limits": {names.NATIVE_GPU: "2"}}}
    raw = sharing_job() if path == JOB_SHARING else sharing_pod(containers=[two_gpus])
    if path == JOB_SHARING:
        raw["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 2
    response = await service.review(path, raw)
    assert is_refused(response)
    assert service.count(kind=path.split("-")[1], outcome="refused") == 1
