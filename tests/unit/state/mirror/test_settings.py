"""The settings of jobs from namespaces and policies as last seen."""

from dataclasses import replace

import pytest

from kfext import names
from kfext.core.lifecycle.situation import HostNetworkRequest
from kfext.core.settings.table import Settings, parse_setting
from kfext.kube.wire import decode_namespace
from kfext.model.job import TrainingJob
from kfext.model.label_selector import LabelSelector
from kfext.model.namespace import Namespace
from kfext.model.network_policy import NetworkPolicy
from kfext.model.parameters import Fairness, Placement, Queueing
from kfext.model.policy import TrainingPolicy
from kfext.names import COLOCATION, QUEUE_WEIGHT
from kfext.state.mirror.cluster import Cluster
from kfext.state.mirror.settings import SettingsSource
from tests.builders import JobBuilder, job
from tests.setting_samples import WELL_FORMED

TEAM = Namespace("team", {"kind": "research"}, {COLOCATION: "required"})
POLICY = TrainingPolicy(
    name="p",
    selector=LabelSelector({"kind": "research"}),
    settings={COLOCATION: "off"},
    placement=Placement(bind_timeout=7.0),
)


def source(*, namespace: bool = False, policy: bool = False) -> SettingsSource:
    settings = SettingsSource()
    labels = Namespace("team", TEAM.labels, TEAM.annotations if namespace else {})
    settings.observe_namespace(None, labels)
    if policy:
        settings.observe_policy(POLICY)
    return settings


def test_settings_are_resolved_again_only_for_jobs_of_the_namespace_that_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, settings, resolved = Cluster(), source(), []
    real = SettingsSource.resolve

    def record(
        self: SettingsSource, training_job: TrainingJob
    ) -> tuple[Settings, HostNetworkRequest | None]:
        resolved.append(training_job.namespace)
        return real(self, training_job)

    monkeypatch.setattr(SettingsSource, "resolve", record)
    for namespace in ("team", "other"):
        builder = job(uid=namespace, name=namespace).worker(2)
        builder.raw["metadata"]["namespace"] = namespace
        cluster.observe_job(builder.raw)

    def resolve() -> list[str]:
        resolved.clear()
        for tracked in cluster.jobs.values():
            settings.settings_of(tracked)
        return resolved

    assert resolve() == ["team", "other"]
    policy = NetworkPolicy("other", "p")
    edited = NetworkPolicy("other", "p", LabelSelector({"app": "x"}))
    for old, new in ((None, policy), (policy, edited), (edited, None)):
        settings.observe_network_policy(old, new)
        assert resolve() == ["other"]
    settings.observe_namespace(None, Namespace("other", {"kind": "x"}))
    assert resolve() == ["other"]
    settings.observe_policy(POLICY)
    assert resolve() == ["team", "other"]
    assert resolve() == []


def badly_edited(*, admitted: str) -> JobBuilder:
    """Return a job with a malformed value; its template has the valid value from admission."""
    builder = job().worker(2).annotated(COLOCATION, "sometimes")
    template = builder.raw["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    template["metadata"] = {"annotations": {COLOCATION: admitted}}
    return builder


CASES: dict[str, tuple[JobBuilder, SettingsSource, str]] = {
    "the default": (job(), source(), "preferred"),
    "the policy": (job(), source(policy=True), "off"),
    "the namespace before the policy": (job(), source(namespace=True, policy=True), "required"),
    "the job before namespace and policy": (
        job().annotated(COLOCATION, "preferred"),
        source(namespace=True, policy=True),
        "preferred",
    ),
    "a job with a later malformed annotation": (
        job().annotated(COLOCATION, "sometimes"),
        source(namespace=True),
        "required",
    ),
    "a malformed annotation, and the value of admission": (
        badly_edited(admitted="off"),
        source(namespace=True),
        "off",
    ),
    "a namespace that was never seen": (job(), SettingsSource(), "preferred"),
}


@pytest.mark.parametrize(("builder", "settings", "want"), CASES.values(), ids=CASES.keys())
def test_the_colocation_of_a_job(builder: JobBuilder, settings: SettingsSource, want: str) -> None:
    assert settings.resolve(builder.build())[0].colocation == want


def test_a_malformed_edit_is_reported() -> None:
    assert source().resolve(job().build())[0].errors == ()
    (error,) = map(str, source().resolve(badly_edited(admitted="off").build())[0].errors)
    assert f"annotation {COLOCATION} of the job" in error
    assert "'sometimes'" in error


def test_timeouts_come_from_the_policy_that_selects_the_namespace() -> None:
    settings = source(policy=True)
    assert settings.resolve(job().build())[0].placement.bind_timeout == 7.0
    settings.observe_namespace(TEAM, Namespace("team", {"kind": "product"}))
    assert settings.resolve(job().build())[0].placement == Placement()


def test_settings_of_deleted_objects_no_longer_apply() -> None:
    settings = source(namespace=True, policy=True)
    settings.observe_namespace(TEAM, None)
    settings.forget_policy("p")
    assert settings.resolve(job().build())[0].colocation == "preferred"
    assert not settings.policies


ALL = TrainingPolicy("all", queue=Queueing(fairness=Fairness.USAGE))
SOME = replace(ALL, name="some", selector=LabelSelector({"kind": "research"}))
ORDERS: dict[str, tuple[list[TrainingPolicy], Fairness]] = {
    "no policy": ([], Fairness.NONE),
    "a policy for all namespaces": ([ALL], Fairness.USAGE),
    "a policy for some namespaces does not count": ([replace(SOME, weight=9)], Fairness.NONE),
    "the highest weight decides": ([ALL, TrainingPolicy("b", weight=1)], Fairness.NONE),
    "the first name decides": ([TrainingPolicy("b"), ALL], Fairness.USAGE),
}


@pytest.mark.parametrize(("policies", "want"), ORDERS.values(), ids=ORDERS)
def test_the_policy_for_all_namespaces_sets_the_order_of_namespaces(
    policies: list[TrainingPolicy], want: Fairness
) -> None:
    settings = SettingsSource()
    for policy in policies:
        settings.observe_policy(policy)
    assert settings.queueing.fairness is want
    for policy in policies:
        settings.forget_policy(policy.name)
    assert settings.queueing == Queueing()


WEIGHTS = {"2.5": 2.5, "0": 0.0, " 1 ": 1.0, "": 1.0, "-1": 1.0, "10": 1.0, "nan": 1.0, "inf": 1.0}


@pytest.mark.parametrize(("written", "want"), WEIGHTS.items())
def test_the_queue_weight_of_a_namespace_is_1_if_it_is_malformed(written: str, want: float) -> None:
    settings = SettingsSource()
    settings.observe_namespace(None, Namespace("team", {}, {QUEUE_WEIGHT: written}))
    assert settings.queue_weight("team") == want
    assert settings.queue_weight("absent") == 1.0


def test_a_namespace_is_decoded_from_json() -> None:
    raw = b'{"metadata":{"name":"team","labels":{"kind":"research"},"annotations":{"a":1}}}'
    assert decode_namespace(raw) == Namespace("team", {"kind": "research"}, {})


@pytest.mark.parametrize("key", [names.ELASTIC, names.RESIZE, names.MIGRATE, names.METRICS])
def test_an_edit_of_a_running_job_applies_at_once(cluster: Cluster, key: str) -> None:
    settings, name = SettingsSource(), key.removeprefix(f"{names.DOMAIN}/")
    cluster.observe_job(job().worker(2).version(1).raw)
    default = getattr(settings.settings_of(cluster.jobs["uid-1"]), name)
    cluster.observe_job(job().worker(2).annotated(key, WELL_FORMED[key]).version(2).raw)
    edited = getattr(settings.settings_of(cluster.jobs["uid-1"]), name)
    assert edited == parse_setting(key, WELL_FORMED[key], place=key) != default
    cluster.observe_job(job().worker(2).version(3).raw)
    assert getattr(settings.settings_of(cluster.jobs["uid-1"]), name) == default
