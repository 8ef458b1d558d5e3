"""Which PyTorchJobs admission makes elastic, and how."""

import copy
from dataclasses import replace
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext import names
from kfext.core.admission.new_job import mutate_job
from kfext.core.admission.review import ReviewContext
from kfext.core.eligibility import why_no_host_network
from kfext.model.gang_terms import GangTerm
from kfext.model.job import TrainingJob, parse_job
from kfext.model.namespace import Namespace
from kfext.model.policy import Mode, PolicyChoice, TrainingPolicy
from tests import largest_objects
from tests.builders import ANY_SIZE, apart
from tests.unit.objects import Raw, job, replica

CONTEXT = ReviewContext(namespace=Namespace("", {names.MANAGED: "true"}), controller_alive=True)
NO_CONTROLLER = replace(CONTEXT, controller_alive=False)
TRAIN = {"name": "pytorch", "image": "trainer", "command": ["torchrun", "train.py"]}
OWN_RANK = {**TRAIN, "command": ["torchrun", "--node-rank=$(RANK)", "train.py"]}
POLICY = {
    "rdzvBackend": "c10d",
    "minReplicas": 2,
    "maxReplicas": 8,
    "maxRestarts": 100,
    "rdzvConf": [{"key": "last_call_timeout", "value": "5"}],
}


def pods(replicas: int | None, **fields: Any) -> Raw:
    """A replica type that starts torchrun; `fields` replace fields of its spec or its pods."""
    policy = {key: fields.pop(key) for key in ("restartPolicy",) if key in fields}
    return replica(replicas, **{"containers": [copy.deepcopy(TRAIN)], **fields}) | policy


def elastic(specs: Raw | None = None, *, allowed: str = "2-8", **fields: Any) -> Raw:
    """A PyTorchJob that opted in; by default of a Master and two Workers with equal templates."""
    default_specs = {"Master": pods(1), "Worker": pods(2)}
    annotations = {names.ELASTIC: allowed, **fields.pop("annotations", {})}
    return job(specs=default_specs if specs is None else specs, annotations=annotations, **fields)


def admitted(raw: Raw, context: ReviewContext = CONTEXT) -> Raw:
    """The object as the API server would store it."""
    after: Raw = jsonpatch.apply_patch(raw, list(mutate_job(raw, context).ops))
    return after


def parsed(raw: Raw) -> TrainingJob:
    training_job = parse_job(raw)
    assert training_job is not None
    return training_job


def verdict(raw: Raw, context: ReviewContext = CONTEXT) -> str:
    results = [
        verdict for verdict in mutate_job(raw, context).verdicts if verdict.reason == "MadeElastic"
    ]
    return results[0].message if results else ""


MADE: dict[str, tuple[Raw, int]] = {
    "a Master and Workers": (elastic(), 3),
    "only Workers": (elastic({"Worker": pods(4)}), 4),
    "only a Master": (elastic({"Master": pods(1)}, allowed="1-8"), 1),
    "an unstated number of Workers": (elastic({"Master": pods(1), "Worker": pods(None)}), 2),
    "as few as it may have": (elastic({"Worker": pods(2)}), 2),
    "as many as it may have": (elastic({"Master": pods(1), "Worker": pods(7)}), 8),
    "only one size": (elastic(allowed="3-3"), 3),
    "restart policies that are alike by default": (
        elastic({"Master": pods(1), "Worker": pods(2, restartPolicy="OnFailure")}),
        3,
    ),
    "pods that always restart": (elastic({"Worker": pods(2, restartPolicy="Always")}), 2),
    "pods that are kept": (elastic(run_policy={"cleanPodPolicy": "None"}), 3),
    "retries": (elastic(run_policy={"backoffLimit": 3}), 3),
    "a person's suspension": (elastic(run_policy={"suspend": True}), 3),
}


@pytest.mark.parametrize(("raw", "pods"), MADE.values(), ids=MADE)
def test_a_job_made_elastic_has_only_workers_and_meets_at_the_first(raw: Raw, pods: int) -> None:
    after = admitted(raw)
    result = parsed(after)
    assert [(group.key, group.replicas) for group in result.groups] == [("Worker", pods)]
    assert result.scaling.elastic
    assert result.rendezvous.dynamic
    assert result.rendezvous.at_worker
    assert not result.rendezvous.obstacle
    low, _, high = raw["metadata"]["annotations"][names.ELASTIC].partition("-")
    sizes = {"minReplicas": int(low), "maxReplicas": int(high)}
    assert after["spec"]["elasticPolicy"] == POLICY | sizes
    assert verdict(raw)
    assert mutate_job(after, CONTEXT).ops == ()


def test_the_job_is_held_and_its_moved_templates_are_edited() -> None:
    for raw, _ in MADE.values():
        after = admitted(raw)
        metadata = after["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"]
        assert metadata["annotations"][names.COLOCATION] == "preferred"
        assert after["spec"]["runPolicy"]["suspend"] is True


def test_only_the_policy_and_the_number_of_workers_change() -> None:
    raw = elastic(
        {"Master": pods(1, nodeSelector={"a": "b"}), "Worker": pods(2, nodeSelector={"a": "b"})}
    )
    raw["spec"]["nprocPerNode"] = "2"
    after = admitted(raw)
    worker = after["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert (
        worker["template"]["spec"]
        == raw["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    )
    assert after["spec"]["nprocPerNode"] == "2"
    assert after["spec"].keys() - raw["spec"].keys() == {"elasticPolicy", "runPolicy"}


def test_the_change_and_how_to_prevent_it_are_reported() -> None:
    mutation = mutate_job(elastic(), CONTEXT)
    message = verdict(elastic())
    for part in ("torchrun's own rendezvous", "2 to 8 workers", "Master", "from the job", "off"):
        assert part in message
    (warning,) = mutation.warnings
    assert "Master of this job is its first worker now (train-worker-0)" in warning


def test_a_job_without_a_master_gets_no_warning() -> None:
    raw = elastic({"Worker": pods(3)})
    assert mutate_job(raw, CONTEXT).warnings == ()
    assert "Master" not in verdict(raw)


def with_mode(mode: Mode) -> ReviewContext:
    policy = TrainingPolicy(name="gold", companion={"scale": PolicyChoice(mode=mode)})
    return replace(CONTEXT, policies=[policy])


def with_policy(raw: Raw, policy: Any) -> Raw:
    raw["spec"]["elasticPolicy"] = policy
    return raw


NODE_PORT = {**TRAIN, "ports": [{"containerPort": 80, "hostPort": 80}]}
SIDE = {**TRAIN, "name": "side"}
OF_MASTERS = GangTerm("train", ("master",))
NOT_MADE: dict[str, tuple[Raw, ReviewContext, str]] = {
    "too few pods": (elastic(allowed="4-8"), CONTEXT, "3 training pods, outside of 4-8"),
    "too many pods": (elastic(allowed="1-2"), CONTEXT, "3 training pods, outside of 1-2"),
    "pods that end with the first": (
        elastic(run_policy={"cleanPodPolicy": "Running"}), CONTEXT, "cleanPodPolicy"
    ),
    "no cleanPodPolicy": (elastic(run_policy={"cleanPodPolicy": []}), CONTEXT, "cleanPodPolicy"),
    "no retries": (elastic(run_policy={"backoffLimit": 0}), CONTEXT, "backoffLimit of 0"),
    "pods that never restart": (
        elastic({"Worker": pods(2, restartPolicy="Never")}), CONTEXT, "restartPolicy of its Worker"
    ),
    "pods with an exit code that counts": (
        elastic({"Master": pods(1, restartPolicy="ExitCode"), "Worker": pods(2)}),
        CONTEXT,
        "restartPolicy of its Master",
    ),
    "a Master that differs": (
        elastic({"Master": pods(1, nodeSelector={"a": "b"}), "Worker": pods(2)}),
        CONTEXT,
        "different templates",
    ),
    "restart policies that differ": (
        elastic({"Master": pods(1, restartPolicy="Always"), "Worker": pods(2)}),
        CONTEXT,
        "different restart policies",
    ),
    "a different spelling": (elastic({"worker": pods(3)}), CONTEXT, "another spelling"),
    "a type twice": (
        elastic({"Worker": pods(2), "worker": pods(2)}), CONTEXT, "another spelling"
    ),
    "a malformed number": (
        elastic({"Master": pods(1), "Worker": {**pods(2), "replicas": "2"}}),
        CONTEXT,
        "is malformed"
    ),
    "no trainer": (elastic({"Worker": pods(2, containers=[SIDE])}), CONTEXT, "no container"),
    "a rendezvous of its own": (
        elastic({"Worker": pods(2, containers=[OWN_RANK])}), CONTEXT, "uses RANK"
    ),
    "the network of the node": (
        elastic({"Worker": pods(2, hostNetwork=True)}), CONTEXT, "itself sets the host network"
    ),
    "a port of the node": (
        elastic({"Worker": pods(2, containers=[NODE_PORT])}), CONTEXT, "or a host port"
    ),
    "the policy observes": (elastic(), with_mode(Mode.OBSERVE), "companion.scale of the Training"),
    "the policy is off": (elastic(), with_mode(Mode.OFF), "TrainingPolicy is off"),
    "Kueue": (elastic(labels={names.KUEUE_QUEUE: "q"}), CONTEXT, "Kueue decides"),
    "a different system": (elastic(run_policy={"managedBy": "other/system"}), CONTEXT, "managedBy"),
    "a different scheduler": (
        elastic({"Worker": pods(2, schedulerName="volcano")}), CONTEXT, "scheduler volcano"
    ),
    "a release": (elastic(annotations={names.RELEASED: "NoRoom"}), CONTEXT, "is set (NoRoom)"),
    "no placement": (elastic(annotations={names.COLOCATION: "off"}), CONTEXT, "colocation is off"),
    "no controller": (elastic(), NO_CONTROLLER, "controller does not answer"),
    "a term that kfext does not model": (
        elastic({"Worker": pods(2, resourceClaims=[{"name": "x"}])}), CONTEXT, "does not model"
    ),
    "a term on the Master": (
        elastic({"Master": pods(1, **apart(OF_MASTERS))}, allowed="1-8"),
        CONTEXT,
        "does not model",
    ),
    "a Master beside its own policy": (with_policy(elastic(), {}), CONTEXT, "its Master fixes"),
}  # fmt: skip


@pytest.mark.parametrize(("raw", "context", "why"), NOT_MADE.values(), ids=NOT_MADE)
def test_a_job_that_cannot_be_made_elastic_gets_a_warning_with_the_reason(
    raw: Raw, context: ReviewContext, why: str
) -> None:
    mutation = mutate_job(raw, context)
    after = admitted(raw, context)
    (warning,) = [text for text in mutation.warnings if "no effect on this job" in text]
    assert why in warning
    assert after["spec"].get("elasticPolicy") == raw["spec"].get("elasticPolicy")
    assert after["spec"]["pytorchReplicaSpecs"].keys() == raw["spec"]["pytorchReplicaSpecs"].keys()
    assert not verdict(raw, context)


NOT_MEANT: dict[str, Raw] = {
    "a job that did not opt in": job(specs={"Worker": pods(2)}),
    "a job that opted out": elastic(allowed="off"),
    "a policy of its own": with_policy(
        elastic({"Worker": pods(2)}), ANY_SIZE | {"minReplicas": 2, "maxReplicas": 8}
    ),
}


@pytest.mark.parametrize("raw", NOT_MEANT.values(), ids=NOT_MEANT)
def test_a_job_that_should_not_be_made_elastic_gets_no_message(raw: Raw) -> None:
    mutation = mutate_job(raw, CONTEXT)
    assert mutation.warnings == ()
    assert not any("elasticPolicy" in op["path"] for op in mutation.ops)


def test_the_namespace_opts_a_job_in_by_default_and_the_job_opts_out() -> None:
    context = replace(
        CONTEXT, namespace=Namespace("", CONTEXT.namespace.labels, {names.ELASTIC: "2-8"})
    )
    assert "from the namespace" in verdict(job(specs={"Worker": pods(2)}), context)
    assert not verdict(elastic(allowed="off"), context)


def test_a_term_on_the_master_is_modelled_without_the_master() -> None:
    raw = elastic({"Master": pods(1, **apart(OF_MASTERS))}, allowed="off")
    assert mutate_job(raw, CONTEXT).verdicts[0].reason == names.REASON_HELD


def test_a_job_beyond_a_bound_is_held_but_not_changed() -> None:
    raw = elastic(
        {"Worker": pods(2, tolerations=[{}] * 65)}, annotations={names.COLOCATION: "required"}
    )
    assert mutate_job(raw, CONTEXT).verdicts[0].reason == names.REASON_HELD
    assert "elasticPolicy" not in admitted(raw)["spec"]


def test_the_largest_job_is_made_elastic_like_any_other() -> None:
    raw = largest_objects.jobs()["the parts that make it elastic"]()
    assert verdict(raw)


def test_the_removal_of_a_master_is_not_reported_as_a_removal_of_copied_marks() -> None:
    raw = elastic(annotations={names.HELD: "true"}, run_policy={"suspend": True})
    reasons = [verdict.reason for verdict in mutate_job(raw, CONTEXT).verdicts]
    assert reasons == [names.REASON_HELD, names.REASON_MADE_ELASTIC, names.REASON_TEMPLATES_EDITED]


def test_a_job_made_elastic_may_use_the_network_of_its_nodes() -> None:
    after = admitted(elastic(annotations={names.NETWORK: "host"}))
    assert why_no_host_network(parsed(after), CONTEXT.namespace.labels) == ""


_replicas = st.sampled_from([None, 0, 1, 2, 3, "2", True, -1])
_commands = st.sampled_from(
    [
        ["torchrun", "x"],
        ["torchrun", "--nnodes=2", "x"],
        ["sh", "-c", "torchrun x"],
        ["python"],
        [],
        3,
    ]
)
_types = st.fixed_dictionaries(
    {
        "template": st.builds(
            lambda command: pods(1, containers=[{**TRAIN, "command": command}])["template"],
            _commands,
        )
    },
    optional={
        "replicas": _replicas,
        "restartPolicy": st.sampled_from(["OnFailure", "Always", "Never", "", None, 3]),
    },
)
_alike = st.builds(
    lambda spec, master, workers: {
        "Master": {**copy.deepcopy(spec), "replicas": master},
        "Worker": {**copy.deepcopy(spec), "replicas": workers},
    },
    _types,
    _replicas,
    _replicas,
)
_nearly = st.builds(
    lambda specs, allowed, fields, policy: {
        **(changed := elastic(specs, allowed=allowed, **fields)),
        "spec": {**changed["spec"], **policy},
    },
    _alike
    | st.dictionaries(
        st.sampled_from(["Master", "Worker", "worker"]), _types | st.none(), max_size=2
    ),
    st.sampled_from(["1-8", "2-8", "1-1"]),
    st.fixed_dictionaries(
        {},
        optional={
            "run_policy": st.fixed_dictionaries(
                {},
                optional={
                    "suspend": st.booleans(),
                    "backoffLimit": st.sampled_from([None, 0, 3]),
                    "cleanPodPolicy": st.sampled_from([None, "None", "All", {}]),
                },
            ),
            "annotations": st.dictionaries(
                st.sampled_from([names.HELD, names.PLAN, names.COLOCATION]),
                st.sampled_from(["off", "required"]),
            ),
        },
    ),
    st.sampled_from(
        [{}, {}, {}, {"elasticPolicy": None}, {"elasticPolicy": {}}, {"elasticPolicy": 3}]
    ),
)


@given(_nearly)
def test_any_job_gets_a_valid_patch_and_a_second_review_none(raw: Raw) -> None:
    before = copy.deepcopy(raw)
    mutation = mutate_job(raw, CONTEXT)
    assert raw == before
    after = jsonpatch.apply_patch(copy.deepcopy(raw), list(mutation.ops))
    again = mutate_job(after, CONTEXT)
    assert again.ops == ()
    assert again.refusal == mutation.refusal
    old, new = parsed(raw), parsed(after)
    assert new.pods == old.pods
    if verdict(raw):
        assert new.scaling.elastic
        assert new.scaling.fewest <= new.pods <= new.scaling.most
    else:
        assert after["spec"].get("elasticPolicy") == raw["spec"].get("elasticPolicy")
