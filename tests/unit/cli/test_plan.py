"""`kubectl kfext plan -f`: the controller's own decisions, on the API server's objects."""

from collections.abc import Mapping
from typing import Any

import pytest

from kfext.cli.plan import Answer, Forecast, answer_lines, render_answers
from kfext.cli.what_if import expected_starts
from kfext.core.progress.reported import Progress, Reported
from kfext.core.queue.expected import ExpectedStart
from kfext.errors import UserError
from kfext.model.job import TrainingJob
from kfext.model.moment import Moment
from kfext.model.namespace import Namespace
from kfext.model.network_policy import parse_network_policy
from kfext.model.node import Node
from kfext.model.plan import Plan
from kfext.model.pod import ReplicaKey
from kfext.model.policy import parse_policy
from kfext.model.priority import PriorityClass
from kfext.model.quota import parse_quota
from kfext.model.snapshot import Snapshot
from kfext.model.timestamps import written_time
from kfext.names import COLOCATION, MANAGED, NETWORK, PLAN
from kfext.state.planner.planner import Planner
from tests.builders import JobBuilder, job, node

NOW = 1_000.0
MANAGED_TEAM = {"team": Namespace("team", labels={MANAGED: "true"})}


def snapshot(*nodes: Node, jobs: tuple[TrainingJob, ...] = (), **more: Any) -> Snapshot:
    more.setdefault("namespaces", MANAGED_TEAM)
    return Snapshot(nodes=nodes, jobs=jobs, **more)


def document(builder: JobBuilder) -> dict[str, Any]:
    """A manifest as a person writes it."""
    metadata = {key: builder.raw["metadata"][key] for key in ("name", "annotations", "labels")}
    return {**builder.raw, "metadata": metadata}


def runs(uid: str, on: str, *, workers: int, cpu: str = "1") -> TrainingJob:
    """A job that was started; its pods do not exist yet."""
    places = {ReplicaKey("worker", index): on for index in range(workers)}
    plan = Plan(uid, 1, places).encode()
    return job(name=uid, uid=uid).worker(workers, cpu=cpu).resumed().annotated(PLAN, plan).build()


def waits(uid: str, *, workers: int, created: float = 0, **more: Any) -> TrainingJob:
    builder = job(name=uid, uid=uid).worker(workers, cpu="1", **more).held()
    return builder.created(created).build()


def ask(snapshot: Snapshot, builder: JobBuilder) -> Answer:
    return Forecast(snapshot, now=NOW).submit(document(builder), home="team")


def test_a_job_that_fits_would_start_with_its_nodes() -> None:
    answer = ask(snapshot(node("a", cpu="2"), node("b", cpu="4")), job().worker(3, cpu="1"))
    assert answer.outcome == "starts"
    assert answer.nodes == {f"train-worker-{index}": "b" for index in range(3)}


def test_a_started_job_holds_its_capacity_before_its_pods_exist() -> None:
    cluster = snapshot(node("a", cpu="4"), jobs=(runs("first", "a", workers=3),))
    answer = ask(cluster, job().worker(2, cpu="1"))
    assert answer.outcome == "waits"
    assert answer.reason == "NoRoom"
    assert "1 cpu free, 1 cpu short" in answer.message


def test_jobs_before_it_in_the_queue_take_their_capacity_first() -> None:
    cluster = snapshot(node("a", cpu="4"), jobs=(waits("older", workers=3),))
    answer = ask(cluster, job().worker(2, cpu="1"))
    assert answer.outcome == "waits"
    assert "it is first in the queue" in answer.message  # the older job is about to start


def test_the_answer_has_the_number_of_jobs_before_it() -> None:
    cluster = snapshot(
        node("a", cpu="4"),
        jobs=(runs("runs", "a", workers=4), waits("x", workers=1), waits("y", workers=1)),
    )
    assert "2 jobs are ahead in the queue" in ask(cluster, job().worker(1, cpu="1")).message


def test_capacity_reserved_for_the_first_job_is_not_planned() -> None:
    cluster = snapshot(
        node("a", cpu="4"), jobs=(runs("runs", "a", workers=3), waits("head", workers=4))
    )
    answer = ask(cluster, job().worker(1, cpu="1"))
    assert (answer.outcome, answer.reason) == ("waits", "Reserved")
    assert (
        "reserved for PyTorchJob team/head, which waits for PyTorchJob team/runs" in answer.message
    )


def ended(name: str, *, seconds: float) -> TrainingJob:
    builder = job(name=name, uid=name).worker(1, cpu="1").resumed()
    builder.condition("Succeeded", since=seconds)
    builder.raw["status"]["startTime"] = written_time(1.0)
    return builder.build()


@pytest.mark.parametrize("long", ["a", "b"])
def test_the_first_answer_uses_the_durations_of_ended_jobs(long: str) -> None:
    short = "b" if long == "a" else "a"
    jobs = (
        ended(f"{short}-1", seconds=10.0),
        ended(f"{long}-1", seconds=5000.0),
        waits(f"{long}-9", workers=1, created=100),
        waits(f"{short}-9", workers=1, created=200),
    )
    by_length = {"metadata": {"name": "p"}, "spec": {"queue": {"order": "shortest"}}}
    cluster = snapshot(node("n", cpu="1"), jobs=jobs, policies=(parse_policy(by_length),))
    answers = {answer.job[-3:]: answer.outcome for answer in Forecast(cluster, now=NOW).queue()}
    assert answers == {f"{short}-9": "starts", f"{long}-9": "waits"}


def test_a_job_that_is_released_at_once_is_not_reported_to_wait() -> None:
    at_once = {"metadata": {"name": "p"}, "spec": {"placement": {"releaseAfter": "0s"}}}
    cluster = snapshot(node("n", cpu="1"), policies=(parse_policy(at_once),))
    assert ask(cluster, job().worker(1, cpu="9")).outcome == "not-held"


def test_a_job_of_higher_priority_goes_before_the_reservation() -> None:
    cluster = snapshot(
        node("a", cpu="4"),
        jobs=(runs("runs", "a", workers=3), waits("head", workers=4)),
        classes={"high": PriorityClass("high", 10, preempts=False)},
    )
    urgent = job().worker(1, cpu="1")
    urgent.prioritized("high")
    assert ask(cluster, urgent).outcome == "starts"


def test_a_quota_counts() -> None:
    quota = {
        "metadata": {"namespace": "team", "name": "q"},
        "status": {"hard": {"pods": "4"}, "used": {"pods": "3"}},
    }
    cluster = snapshot(node("a", cpu="8"), quotas=(parse_quota(quota),))
    answer = ask(cluster, job().worker(2, cpu="1"))
    assert (answer.outcome, answer.reason) == ("waits", "QuotaExceeded")


def test_settings_of_policies_and_namespaces_hold() -> None:
    policy = {"metadata": {"name": "p"}, "spec": {"settings": {"colocation": "required"}}}
    cluster = snapshot(node("a", cpu="2"), node("b", cpu="2"), policies=(parse_policy(policy),))
    answer = ask(cluster, job().worker(3, cpu="1"))
    assert answer.outcome == "waits"
    assert "on one node" in answer.message


def test_network_policies_that_would_have_no_effect_are_named() -> None:
    policies = tuple(
        parse_network_policy({"metadata": {"namespace": where, "name": name}, "spec": {}})
        for where, name in (("team", "deny-all"), ("others", "elsewhere"))
    )
    cluster = snapshot(node("a", cpu="4"), network_policies=policies)
    said = ask(cluster, job().master(cpu="1").worker(2, cpu="1").annotated(NETWORK, "host")).message
    assert "deny-all" in said
    assert "elsewhere" not in said


ON_HOST = {"hostNetwork": True, "containers": [{"name": "pytorch"}]}


def test_two_pods_with_host_networks_of_their_own_never_share_a_node() -> None:
    workers = job().worker(2, spec=ON_HOST)
    answer = ask(snapshot(node("a"), node("b")), workers)
    assert sorted(answer.nodes.values()) == ["a", "b"]
    alone = ask(snapshot(node("a")), workers)
    assert (alone.outcome, alone.reason, alone.nodes) == ("waits", "TooBig", {})
    assert "2 of its pods want host port 23456, which a node has only once" in alone.message


def test_a_long_list_of_reserved_ports_is_shortened() -> None:
    builder = job("TFJob").group("Chief").ps(1).worker(2).annotated(NETWORK, "host")
    assert " and 2 more ports are reserved" in ask(snapshot(node("a")), builder).message


def test_in_a_namespace_that_is_not_managed_it_starts_as_on_plain_kubernetes() -> None:
    cluster = snapshot(node("a", cpu="1"), namespaces={"team": Namespace("team")})
    answer = ask(cluster, job().worker(3, cpu="1"))
    assert (answer.outcome, answer.nodes) == ("not-held", {})
    assert "not labelled kfext.dev/managed=true" in answer.message


def test_the_second_job_of_a_file_is_planned_as_if_the_first_had_started() -> None:
    cluster = snapshot(node("a", cpu="4"))
    forecast = Forecast(cluster, now=NOW)
    first = forecast.submit(document(job(name="one").worker(3, cpu="1")), home="team")
    second = forecast.submit(document(job(name="two").worker(2, cpu="1")), home="team")
    assert (first.outcome, second.outcome) == ("starts", "waits")


def test_a_job_that_admission_would_refuse_is_refused_with_the_same_message() -> None:
    wrong = job().worker(1).annotated("kfext.dev/colocation", "perhaps")
    with pytest.raises(UserError, match="colocation"):
        ask(snapshot(node("a")), wrong)


UNDECIDED: dict[str, tuple[dict[str, Any], str, str]] = {
    "suspended by its author": ({"suspend": True}, "waits", "suspend was set in the submitted job"),
    "run by another system": ({"managedBy": "other.dev/x"}, "not-held", "managedBy is other.dev/x"),
}


@pytest.mark.parametrize(("policy", "outcome", "why"), UNDECIDED.values(), ids=UNDECIDED)
def test_a_job_that_kfext_does_not_start_is_not_reported_to_start(
    policy: dict[str, Any], outcome: str, why: str
) -> None:
    builder = job().worker(1)
    builder.raw["spec"]["runPolicy"] = policy
    answer = ask(snapshot(node("a")), builder)
    assert answer.outcome == outcome
    assert why in answer.message


IMPOSSIBLE: dict[str, tuple[dict[str, str], str]] = {
    "no name": ({"name": ""}, "no metadata.name"),
    "no such namespace": ({"name": "x", "namespace": "nowhere"}, "there is no namespace 'nowhere'"),
    "a name that is in use": (
        {"name": "runs"},
        "exists already: see `kubectl kfext explain -n team",
    ),
}


@pytest.mark.parametrize(("metadata", "words"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_a_job_that_cannot_be_created_gets_an_error(metadata: dict[str, str], words: str) -> None:
    cluster = snapshot(node("a", cpu="4"), jobs=(runs("runs", "a", workers=1),))
    with pytest.raises(UserError, match=words):
        Forecast(cluster, now=NOW).submit(
            {**document(job().worker(1)), "metadata": metadata}, home="team"
        )


def test_a_generated_name_is_shown_as_generated() -> None:
    generated = {**document(job().worker(1)), "metadata": {"generateName": "run-"}}
    result = Forecast(snapshot(node("a")), now=NOW).submit(generated, home="team")
    assert result.job == "PyTorchJob team/run-xxxxx"


def test_the_warnings_of_admission_are_shown() -> None:
    builder = job().worker(1).annotated("kfext.dev/migrat", "checkpointed")
    assert "warning: " in "".join(ask(snapshot(node("a")), builder).warnings)


ANSWER = Answer("PyTorchJob team/a", "starts", "Planned", "1 pod goes to n; x", {"a-worker-0": "n"})


def test_the_answer_in_words() -> None:
    assert [*answer_lines([ANSWER])] == [
        "PyTorchJob team/a: would start now",
        "  why      Planned: 1 pod goes to n",
        "           - x",
        "  POD         NODE",
        "  a-worker-0  n",
    ]


def test_an_empty_queue_in_words() -> None:
    assert [*answer_lines([])] == ["no job waits"]


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_the_answer_for_programs(output: str) -> None:
    assert "would" not in render_answers([ANSWER], output=output)
    assert "a-worker-0" in render_answers([ANSWER], output=output)


def test_a_job_with_more_replicas_than_kfext_places_is_answered_without_counting_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def count(self: TrainingJob) -> None:
        raise AssertionError("the pods are counted")

    monkeypatch.setattr(TrainingJob, "replicas", count)
    huge = job().worker(2**31 - 1, cpu="1")
    answer = ask(snapshot(node("a", cpu="4")), huge)
    assert answer.outcome == "not-held"
    assert f"{2**31 - 1} pods, more than the 10000" in answer.message
    required = ask(snapshot(node("a", cpu="4")), huge.annotated(COLOCATION, "required"))
    assert required.outcome == "waits"
    assert "it stays suspended" in required.message


def timed(snapshot: Snapshot, progress: Mapping[str, Reported] | None = None) -> Answer:
    forecast = Forecast(snapshot, progress, now=NOW)
    submitted = forecast.submit(document(job().worker(1, cpu="1")), home="team")
    return forecast.with_starts([submitted])[0]


def test_a_job_that_would_wait_has_an_expected_start() -> None:
    cluster = snapshot(node("a", cpu="4"), jobs=(runs("first", "a", workers=4),))
    shown = {"first": Reported(Progress(step=1, remaining=600.0))}
    result = timed(cluster, shown)
    assert result.starts.startswith("it should start between 00:")
    assert result.starts.endswith("after the end of PyTorchJob team/first")
    said = "\n".join(answer_lines([result]))
    assert "  starts   it should start between" in said
    assert timed(cluster).starts == "not known: the duration of PyTorchJob team/first is unknown"


def test_a_job_that_starts_now_has_no_expected_start() -> None:
    assert timed(snapshot(node("a", cpu="4"))).starts == ""


def test_the_starts_of_all_jobs_of_a_file_are_forecast_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[Moment] = []

    def counted_starts(planner: Planner, now: Moment) -> Mapping[str, ExpectedStart]:
        calls.append(now)
        return expected_starts(planner, now)

    monkeypatch.setattr("kfext.cli.plan.expected_starts", counted_starts)
    cluster = snapshot(node("a", cpu="4"), jobs=(runs("first", "a", workers=3),))
    forecast = Forecast(cluster, {"first": Reported(Progress(step=1, remaining=600.0))}, now=NOW)
    sizes = {"job-1": 1, "job-2": 3, "job-3": 4}
    builders = [job(name=name).worker(workers, cpu="1") for name, workers in sizes.items()]
    answers = [forecast.submit(document(builder), home="team") for builder in builders]
    starts = [answer.starts.partition(";")[0] for answer in forecast.with_starts(answers)]
    assert len(calls) == 1
    assert starts[0] == ""
    assert starts[1].startswith("it should start between")
    assert "not known" in starts[2]
