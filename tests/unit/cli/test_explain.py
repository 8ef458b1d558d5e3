"""The output of `kubectl kfext explain` about a job, with and without its TrainingPlan."""

from collections.abc import Iterable
from itertools import takewhile
from typing import Any

import pytest
from click.testing import CliRunner

from kfext import names
from kfext.cli.explain import _plan_status, explanation_from, explanation_lines
from kfext.cli.main import cli
from kfext.errors import ApiError, Forbidden, NotFound
from kfext.model.cpu_state import CpuState, PodCpu
from kfext.model.job import parse_job
from kfext.model.job_state import JobState
from kfext.model.plan import Plan
from kfext.model.pod import Pod, ReplicaKey, parse_pod
from kfext.model.timestamps import written_time
from tests.unit.objects import Raw, job, pod

GATE = [{"name": names.GATE}]
HELD = {names.HELD: "true"}
NOW = 1_800_000_000.0


def words(raw: Raw, *pods: Pod, status: dict[str, Any] | None = None, **options: bool) -> str:
    parsed = parse_job(raw)
    assert parsed is not None
    explanation = explanation_from(parsed, raw, status=status or {}, pods=pods, now=NOW)
    return text(explanation_lines(explanation, **options))


def text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def changes_of(raw: Raw, *pods: Pod) -> list[str]:
    """Return the lines of the table of changes."""
    lines = words(raw, *pods, all_changes=True).splitlines()
    at = next((at for at, line in enumerate(lines) if line.split() == ["ON", "CHANGE"]), len(lines))
    changes = takewhile(lambda line: not line.startswith("  warning"), lines[at + 1 :])
    return [" ".join(line.split()) for line in changes]


def replica(index: int, *, node: str = "", gates: Any = ()) -> Pod:
    labels = {
        names.JOB_NAME: "train",
        names.REPLICA_TYPE: "worker",
        names.REPLICA_INDEX: str(index),
    }
    spec = {"nodeName": node, "schedulingGates": list(gates)}
    return parse_pod(pod(name=f"train-worker-{index}", labels=labels, spec=spec))


def kfext_job(colocation: str = "preferred") -> Raw:
    """A job with templates that the webhook has written to."""
    metadata = {"annotations": {names.COLOCATION: colocation}}
    return job(specs={"Worker": {"replicas": 3, "template": {"metadata": metadata}}})


SUSPENDED = {"suspend": True}
PHASES: dict[str, tuple[Raw, list[Pod], str]] = {
    "queued, and no controller reports a reason": (
        job(annotations=HELD, run_policy=SUSPENDED),
        [],
        "Queued",
    ),
    "suspended by a person": (job(run_policy=SUSPENDED), [], "Suspended"),
    "released": (job(annotations={names.RELEASED: "NoRoom"}), [], "Released"),
    "the operator creates pods": (kfext_job(), [replica(0)], "Planned"),
    "pods wait behind the gate": (kfext_job(), [replica(i, gates=GATE) for i in range(3)], "Gated"),
    "pods wait for kube-scheduler": (kfext_job(), [replica(i) for i in range(3)], "Binding"),
    "placed": (kfext_job(), [replica(i, node="n") for i in range(3)], "Placed"),
    "in a namespace that is not managed": (job(), [replica(0, node="n")], "not placed by kfext"),
    "colocation off": (kfext_job("off"), [replica(0, node="n")], "not placed by kfext"),
    "run by another system": (job(run_policy={"managedBy": "o.dev/x"}), [], "not placed by kfext"),
    "ended": (
        {**job(), "status": {"conditions": [{"type": "Succeeded", "status": "True"}]}},
        [],
        "Finished",
    ),
}


@pytest.mark.parametrize(("raw", "pods", "phase"), PHASES.values(), ids=PHASES)
def test_without_a_plan_the_phase_is_read_from_job_and_pods(
    raw: Raw, pods: list[Pod], phase: str
) -> None:
    (headline, *_) = words(raw, *pods).splitlines()
    assert headline.startswith(f"PyTorchJob team/train: {phase}")


def test_a_job_that_is_being_deleted_has_finished_but_not_ended() -> None:
    (headline, *_) = words(kfext_job(), status={"phase": "Finished"}).splitlines()
    assert headline.startswith("PyTorchJob team/train: Finished")


def test_explain_says_how_to_start_a_queued_job_without_a_plan() -> None:
    result = words(job(annotations=HELD, run_policy=SUSPENDED))
    assert "`kubectl kfext release -n team train`" in result


def test_a_caller_who_may_not_read_the_plan_is_not_told_to_release_the_job() -> None:
    raw = job(annotations=HELD, run_policy=SUSPENDED)
    parsed = parse_job(raw)
    assert parsed is not None
    output = text(explanation_lines(explanation_from(parsed, raw, status=None, pods=(), now=NOW)))
    assert "you may not get trainingplans in namespace team" in output
    assert "release" not in output


def test_an_annotation_that_users_write_too_does_not_show_that_kfext_placed_a_job() -> None:
    metadata = {"annotations": {names.ISTIO_INJECT: "false"}}
    raw = job(specs={"Worker": {"replicas": 1, "template": {"metadata": metadata}}})
    output = words(raw, replica(0, node="n"))
    assert "not placed by kfext" in output
    assert "changed  nothing" in output
    metadata["annotations"][names.PORT_BASE] = "20000"
    assert f"the templates Worker: {names.ISTIO_INJECT}=false" in changes_of(raw)


def test_a_newline_in_an_annotation_adds_no_line() -> None:
    output = words(job(annotations={names.RELEASED: "a\n  warning  forged"}))
    assert "\n  warning" not in output


def test_a_pod_that_is_being_deleted_ends() -> None:
    labels = {names.REPLICA_TYPE: "worker", names.REPLICA_INDEX: "0"}
    ending = pod(labels=labels, deletionTimestamp="2027-01-15T08:00:00Z", spec={"nodeName": "n"})
    assert "  train-worker-0  n     ends\n" in words(kfext_job(), parse_pod(ending))


def test_the_reason_comes_from_the_plan() -> None:
    status = {"phase": "Queued", "reason": "NoRoom", "message": "3 pods need 6 cpu on one node"}
    result = words(job(annotations=HELD, run_policy=SUSPENDED), status=status)
    assert "why      NoRoom: 3 pods need 6 cpu on one node" in result
    assert "changed  1 on the job; --changes lists them" in result
    want = "the job suspended when it was submitted, and waits to be placed (kfext.dev/held)"
    assert want in changes_of(job(annotations=HELD, run_policy=SUSPENDED))


def test_explain_lists_the_nodes_of_pods_in_rank_order() -> None:
    places = {ReplicaKey("worker", 0): "node-b", ReplicaKey("worker", 1): "node-a"}
    plan = Plan(job_uid="u", generation=1, assignment=places).encode()
    raw = job(uid="u", annotations={names.PLAN: plan, **HELD})
    result = words(raw, replica(10), replica(2, node="node-b"), replica(1, gates=GATE))
    assert result.splitlines()[0] == "PyTorchJob team/train: Gated, on node-b, pod network"
    assert result.splitlines()[1:5] == [
        "  POD              NODE    STATUS",
        "  train-worker-1           gated",
        "  train-worker-2   node-b  Pending",
        "  train-worker-10          waits",
    ]
    assert words(raw).splitlines()[0].endswith(": Planned, to be placed on node-a and node-b")


def test_explain_lists_the_changes() -> None:
    metadata = {"annotations": {names.COLOCATION: "required", "other": "x"}}
    raw = job(specs={"Worker": {"template": {"metadata": metadata}}})
    assert "  changed  1 on the templates; --changes lists them\n" in words(raw)
    assert changes_of(raw) == ["the templates Worker: kfext.dev/colocation=required"]


def test_explain_with_changes_lists_the_history() -> None:
    at = {"time": written_time(NOW), "workers": 3, "nodes": ["a", "b"], "moreNodes": 0}
    entries = [
        {**at, "what": "Placed", "why": "all 3 pods are bound"},
        {**at, "what": "Scaled", "why": "idle room pays", "times": 4},
        {**at, "what": "Moved", "why": "\x1b[2J\nforged", "moreNodes": 2**40},
    ]
    result = words(job(annotations=HELD), status={"history": entries}, all_changes=True)
    rows = [" ".join(line.split()) for line in result.splitlines()]
    assert rows[rows.index("TIME WHAT WORKERS NODES WHY") + 1 :][:3] == [
        f"{written_time(NOW)} Placed 3 a and b all 3 pods are bound",
        f"{written_time(NOW)} Scaled x4 3 a and b idle room pays",
        f"{written_time(NOW)} Moved 3 {2**31 + 1} nodes [2J forged",
    ]
    assert "idle room" not in words(job(annotations=HELD), status={"history": entries})


@pytest.mark.parametrize(("workers", "shown"), [(8, True), (9, False)])
def test_explain_reports_an_elastic_job_that_was_scaled_down_and_not_edited_since(
    workers: int, *, shown: bool
) -> None:
    state = JobState(requested=12, assigned=8).encode(job_uid="u")
    raw = job(uid="u", annotations={names.STATE: state}, specs={"Worker": {"replicas": workers}})
    want = ["the job has 8 workers of the 12 requested (kfext.dev/state)"]
    assert changes_of(raw) == (want if shown else [])


def resized_pod(request: str, *, index: int = 0, limit: str = "1400m") -> Pod:
    labels = {
        names.JOB_NAME: "train",
        names.REPLICA_TYPE: "worker",
        names.REPLICA_INDEX: str(index),
    }
    resources = {"requests": {"cpu": request}, "limits": {"cpu": limit} if limit else {}}
    spec = {"nodeName": "n", "containers": [{"name": "pytorch", "resources": resources}]}
    return parse_pod(pod(name=f"train-worker-{index}", labels=labels, spec=spec))


def cpu_changed(
    *pods: Pod, limit: int | None = 1400, written: tuple[int, ...] = (370,)
) -> list[str]:
    """The listed changes of CPU; kfext wrote the requests `written` to the first six workers."""
    sizes = tuple(PodCpu(request, limit) for request in written)
    state = CpuState(
        requested={"worker": PodCpu(20, limit)},
        written={f"worker-{index}": sizes for index in range(6)},
    )
    raw = job(uid="u", annotations={names.STATE: JobState(cpu=state).encode(job_uid="u")})
    return [line.removeprefix("some pods ") for line in changes_of(raw, *pods) if "CPU of" in line]


ASKED = "by the job: request 20m, limit 1400m (kfext.dev/state)"
CPU_CHANGES: dict[str, tuple[list[str], list[str]]] = {
    "a request of kfext": (
        cpu_changed(resized_pod("370m")),
        [f"CPU of train-worker-0: request 370m, limit 1400m; {ASKED}"],
    ),
    "where the job has no limit": (
        cpu_changed(resized_pod("370m", limit=""), limit=None),
        [
            "CPU of train-worker-0: request 370m, no limit; by the job: request 20m, no limit "
            "(kfext.dev/state)"
        ],
    ),
    "equal requests together, in rank order": (
        cpu_changed(*(resized_pod("370m", index=at) for at in (5, 1, 3, 0, 2))),
        [
            "CPU of train-worker-0, train-worker-1 and 3 more pods: request 370m, limit 1400m; "
            f"{ASKED}"
        ],
    ),
    "the request before the last, of a write that was not made": (
        cpu_changed(resized_pod("90m"), written=(370, 90)),
        [f"CPU of train-worker-0: request 90m, limit 1400m; {ASKED}"],
    ),
    "not the job's own request": (cpu_changed(resized_pod("20m"), written=(20,)), []),
    "not a request of another client": (cpu_changed(resized_pod("1")), []),
    "not a request that kfext has not changed": (cpu_changed(resized_pod("370m", index=7)), []),
}


@pytest.mark.parametrize(("changes", "want"), CPU_CHANGES.values(), ids=CPU_CHANGES)
def test_explain_shows_which_cpu_is_set_by_kfext(changes: list[str], want: list[str]) -> None:
    assert changes == want


def test_explain_lists_the_nodes_that_a_template_prefers() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["node-a"]}
    term = {"weight": 100, "preference": {"matchFields": [field]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    raw = job(specs={"Worker": {"template": {"spec": {"affinity": affinity}}}})
    assert changes_of(raw) == ["the templates Worker: prefers node-a (affinity)"]


def test_explain_reports_that_nothing_was_changed() -> None:
    result = words(job())
    assert "why      kfext does not place this job, for one of these reasons\n" in result
    assert (
        "           - its namespace was not labelled kfext.dev/managed=true when it was" in result
    )
    assert result.endswith("changed  nothing\n")


def test_a_message_that_all_pods_share_is_printed_once() -> None:
    why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/4"}
    pods = [
        parse_pod({**pod(name=f"p-{index}"), "status": {"conditions": [why]}}) for index in range(3)
    ]
    result = words(kfext_job(), *pods)
    assert [line for line in result.splitlines() if "0/4" in line] == ["  unbound  3 pods: 0/4"]


NODE = "gpu-node-7.example.org"


def on_host(**policy: Any) -> tuple[Raw, list[Pod]]:
    """A job of four pods on the host network, with its pods."""
    keys = [ReplicaKey("master", 0), *(ReplicaKey("worker", index) for index in range(3))]
    plan = Plan("u", 1, dict.fromkeys(keys, NODE), port=20000)
    metadata = {
        "annotations": {
            names.COLOCATION: "preferred",
            names.NETWORK: "host",
            names.PORT_BASE: "20000",
            names.PLAN_GENERATION: "1",
            names.ISTIO_INJECT: "false",
        }
    }
    template = {"template": {"metadata": metadata}}
    raw = job(
        uid="u",
        annotations={names.PLAN: plan.encode(), names.HELD: "true"},
        specs={"Master": {"replicas": 1, **template}, "Worker": {"replicas": 3, **template}},
    )
    raw["spec"] |= {"elasticPolicy": policy} if policy else {}
    pods = [
        parse_pod(
            pod(
                name=f"train-{key.type}-{key.index}",
                labels={
                    names.JOB_NAME: "train",
                    names.REPLICA_TYPE: key.type,
                    names.REPLICA_INDEX: str(key.index),
                },
                spec={"hostNetwork": True, "nodeName": NODE},
            )
            | {"status": {"phase": "Running"}}
        )
        for key in keys
    ]
    return raw, pods


def condition(type_: str, message: str, **more: str) -> dict[str, str]:
    return {"type": type_, "status": "True", "reason": type_, "message": message, **more}


def test_on_the_host_network_each_edit_of_a_pod_is_shown_with_its_reason() -> None:
    raw, pods = on_host()
    output = changes_of(raw, *pods)
    assert f"the templates Worker: {names.PORT_BASE}=20000" in output
    assert len([line for line in output if line.startswith("the templates")]) == 10
    edits = [line for line in output if line.startswith("each pod")]
    assert edits[0] == "each pod hostNetwork is true, because pods are to communicate without " + (
        "the overlay"
    )
    # Edits of torchrun's agents alone are not listed for others.
    assert (len(edits), "PET_RDZV_CONF" in str(edits)) == (6, False)
    agents = [line for line in changes_of(*on_host(rdzvBackend="c10d")[:1]) if "each pod" in line]
    assert (len(agents), "PET_RDZV_CONF" in str(agents)) == (8, True)


def test_a_running_job_of_four_pods_fits_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    raw, pods = on_host()
    parsed = parse_job(raw)
    assert parsed is not None
    why = "its pods use their node's network, with ports from 20000 on"
    status = {
        "phase": "Placed",
        "network": "host",
        "reason": "Placed",
        "message": "4 pods are on gpu-node-7.example.org",
        "progress": PROGRESS,
        "conditions": [
            condition(
                "Placed",
                "4 pods are on gpu-node-7.example.org",
                lastTransitionTime=written_time(NOW - 750),
            ),
            condition("Planned", "4 pods go to gpu-node-7.example.org; all of them on one node"),
            condition("HostNetwork", why),
            condition("ProgressKnown", "the log of train-master-0 shows the progress"),
        ],
    }

    async def explanation(*_: Any, **__: Any) -> dict[str, Any]:
        return explanation_from(parsed, raw, status=status, pods=pods, now=NOW)

    monkeypatch.setattr("kfext.cli.explain._explanation", explanation)
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = CliRunner().invoke(cli, ["explain", "train"]).output
    lines = shown.splitlines()
    assert lines[:4] == [
        "PyTorchJob team/train: Placed for 12m, on gpu-node-7.example.org, host network",
        "  why      Placed: 4 pods are on gpu-node-7.example.org",
        "  progress loss 0.8, step 40 of 100, 0.5 a second, 2m left (12s ago)",
        "  progress growth 0.01235, Watching, uses 1.5 CPUs",
    ]
    assert f"  HostNetwork: {why}" in lines
    assert "  train-worker-2  gpu-node-7.example.org  Running" in lines
    assert (
        "  changed  1 on the job, 10 on the templates, 6 on each pod; --changes lists them" in lines
    )
    assert sum(1 + (len(line) - 1) // 80 for line in lines) <= 24
    assert all(line.isprintable() for line in lines)
    more = CliRunner().invoke(cli, ["explain", "train", "--changes"]).output
    assert len(more.splitlines()) == len(lines) + 1 + 17


def test_the_pods_of_a_large_job_are_grouped_by_node_and_status() -> None:
    pods = [replica(index, node="a" if index < 8 else "") for index in range(20)]
    lines = words(kfext_job(), *pods).splitlines()
    at = next(at for at, line in enumerate(lines) if line.split() == ["POD", "NODE", "STATUS"])
    assert [line.split()[-2:] for line in lines[at + 1 : at + 3]] == [
        ["a", "Pending"],
        ["pods", "waits"],
    ]
    assert "train-worker-0, train-worker-1 and 6 more pods" in lines[at + 1]
    assert "train-worker-8, train-worker-9 and 10 more pods" in lines[at + 2]


def limited(limits: Raw, **spec: Any) -> Raw:
    """A job of two workers; `limits` are of their container."""
    container = {"name": "pytorch", "resources": {"limits": limits}}
    template = {"spec": {"containers": [container], **spec}}
    return job(specs={"Worker": {"replicas": 2, "template": template}})


CPU_OF_POD = {"resources": {"limits": {"cpu": "2"}}}
LIMITS = {
    "no CPU limit, together": (limited({"memory": "1Gi"}), "nn", True),
    "apart": (limited({"memory": "1Gi"}), "no", False),
    "a CPU limit": (limited({"cpu": "1"}), "nn", False),
    "a CPU limit of the pod": (limited({}, **CPU_OF_POD), "nn", False),
    "GPUs do the work": (limited({"nvidia.com/gpu": "1"}), "nn", False),
}


@pytest.mark.parametrize(("raw", "on", "warned"), LIMITS.values(), ids=LIMITS)
def test_colocated_pods_without_a_cpu_limit_get_a_warning(raw: Raw, on: str, warned: bool) -> None:
    pods = [replica(index, node=name) for index, name in enumerate(on)]
    output = words(raw, *pods, status={"phase": "Placed"})
    assert ("warning  pods without a CPU limit" in output) == warned
    assert ("assumedBurst" in output) == warned
    assert "warning" not in words(raw, *pods), "kfext does not place the job"


def test_the_warning_names_the_setting_that_colocates_pods() -> None:
    raw = limited({"memory": "1Gi"})
    raw["metadata"]["annotations"] = {names.COLOCATION: "preferred"}
    pods = replica(0, node="n"), replica(1, node="n")
    output = words(raw, *pods, status={"phase": "Placed"})
    assert f"share the CPU of n, because {names.COLOCATION} is set on the job" in output
    assert "assumedBurst" not in output


def test_the_jobs_ahead_that_the_caller_may_see_are_named() -> None:
    raw = job(annotations=HELD, run_policy=SUSPENDED)
    parsed = parse_job(raw)
    assert parsed is not None
    ahead = [f"PyTorchJob other/{name}" for name in "abcd"]
    explanation = explanation_from(parsed, raw, status={}, pods=(), now=NOW, ahead=ahead)
    assert explanation["ahead"] == ahead
    line = "  ahead    PyTorchJob other/a, PyTorchJob other/b and 2 more jobs\n"
    assert line in text(explanation_lines(explanation))
    assert "  ahead " not in words(raw)


def test_conditions_are_shown_with_their_reasons_once() -> None:
    would = {"type": "Resized", "status": "False", "reason": "WouldMoveCpu", "message": "to 700m"}
    still = {"type": "Scaled", "status": "True", "reason": "StandsDown", "message": "a; b"}
    other = condition("HostNetwork", "port 20000 is reserved")
    output = words(kfext_job(), status={"phase": "Placed", "conditions": [other, would, still]})
    assert "  HostNetwork: port 20000 is reserved\n" in output
    assert "  Resized False: WouldMoveCpu: to 700m\n" in output
    assert "  Scaled:  StandsDown: a\n           - b\n" in output
    assert "Resized" not in words(kfext_job(), status={"phase": "Placed"})


PROGRESS = {
    "metric": "loss",
    "value": 0.8,
    "step": 40,
    "totalSteps": 100,
    "stepsPerSecond": 0.5,
    "secondsLeft": 120,
    "growth": 0.012345,
    "state": "Watching",
    "cpu": "1500m",
    "time": written_time(NOW - 12),
}


def test_the_progress_of_a_job_is_shown_where_its_trainingplan_has_it() -> None:
    output = words(kfext_job(), status={"phase": "Placed", "progress": PROGRESS})
    lines = [line for line in output.splitlines() if line.startswith("  progress")]
    assert lines == [
        "  progress loss 0.8, step 40 of 100, 0.5 a second, 2m left (12s ago)",
        "  progress growth 0.01235, Watching, uses 1.5 CPUs",
    ]
    assert "progress" not in words(kfext_job(), status={"phase": "Placed"})


@pytest.mark.parametrize("phase", ["Queued", "Suspended", "Finished"])
def test_a_job_that_does_not_run_has_no_remaining_time_and_no_use(phase: str) -> None:
    output = words(kfext_job(), status={"phase": phase, "progress": PROGRESS})
    lines = [line for line in output.splitlines() if line.startswith("  progress")]
    assert lines == ["  progress loss 0.8, step 40 of 100 (12s ago)"]


def test_the_json_has_the_progress() -> None:
    raw = kfext_job()
    parsed = parse_job(raw)
    assert parsed is not None
    explanation = explanation_from(parsed, raw, status={"progress": PROGRESS}, pods=(), now=NOW)
    assert explanation["progress"]["totalSteps"] == 100


def test_an_edit_that_waits_for_the_next_start_is_shown() -> None:
    edited = {
        "type": names.REASON_SHARE_EDITED,
        "status": "True",
        "reason": names.REASON_SHARE_EDITED,
        "message": "kfext.dev/gpu-share of worker is 0.5 and was edited to 0.9",
    }
    output = words(
        kfext_job(), status={"phase": "Placed", "message": "on n", "conditions": [edited]}
    )
    assert "  ShareEdited: kfext.dev/gpu-share of worker is 0.5 and was edited" in output


@pytest.mark.parametrize("earlier", [False, True], ids=["its own", "of an earlier job"])
async def test_the_plan_of_an_earlier_job_does_not_count_for_this_job(*, earlier: bool) -> None:
    parsed = parse_job(job())
    assert parsed is not None
    reference = {"uid": "earlier" if earlier else parsed.uid}

    class FakeClient:
        async def get(self, _: str) -> Raw:
            return {"spec": {"job": reference}, "status": {"phase": names.PLACED}}

    status = await _plan_status(FakeClient(), parsed)  # type: ignore[arg-type]
    assert status == ({} if earlier else {"phase": names.PLACED})


@pytest.mark.parametrize(("refusal", "want"), [(NotFound, {}), (Forbidden, None)])
async def test_a_missing_plan_differs_from_a_plan_that_the_caller_may_not_read(
    refusal: type[ApiError], want: Any
) -> None:
    parsed = parse_job(job())
    assert parsed is not None

    class FakeClient:
        async def get(self, _: str) -> Raw:
            raise refusal(status=0, reason="", message="")

    assert await _plan_status(FakeClient(), parsed) == want  # type: ignore[arg-type]


STARTS: dict[str, tuple[dict[str, Any], str]] = {
    "the time, and the jobs before": (
        {
            "time": "2027-01-15T08:10:00Z",
            "earliest": "2027-01-15T08:08:00Z",
            "latest": "2027-01-15T08:15:00Z",
            "after": "PyTorchJob team/a",
        },
        "  starts   it should start between 08:08 and 08:15 UTC, most likely at 08:10\n"
        "           - after the end of PyTorchJob team/a\n",
    ),
    "the reason why the start is unknown": (
        {"unknown": "a quota of its namespace stops it"},
        "  starts   not known: a quota of its namespace stops it\n",
    ),
}


@pytest.mark.parametrize(("shown", "want"), STARTS.values(), ids=STARTS)
def test_a_queued_job_says_when_it_should_start(shown: dict[str, Any], want: str) -> None:
    status = {"phase": "Queued", "reason": "NoRoom", "message": "full", "expectedStart": shown}
    assert want in words(job(annotations=HELD, run_policy=SUSPENDED), status=status)


def test_a_job_without_a_forecast_shows_no_start() -> None:
    status = {"phase": "Queued", "reason": "NoRoom", "message": "full"}
    assert "starts" not in words(job(annotations=HELD, run_policy=SUSPENDED), status=status)
