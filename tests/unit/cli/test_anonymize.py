"""An anonymous snapshot names nothing of the cluster and decides as the original does."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from kfext import names
from kfext.cli.anonymize import anonymized
from kfext.cli.forecast import Forecast
from kfext.kube.snapshot_file import encode_snapshot
from kfext.model.job_state import JobState, state_of
from kfext.model.plan import Plan
from kfext.model.pod import ReplicaKey
from kfext.model.policy import parse_policy
from kfext.model.snapshot import JobClocks, Snapshot, UnreservedRecord
from kfext.state.recording import snapshot_of
from tests.builders import job, node
from tests.unit.state.history import ACTS, CROWDED, History


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_it_decides_as_the_original_does(data: st.DataObject) -> None:
    history = History(data)
    for act in (*CROWDED, *data.draw(st.lists(st.sampled_from(ACTS), max_size=30))):
        act(history)
    original = snapshot_of(history.planner, history.moment)
    anonymous = anonymized(original)
    answers = [Forecast(one, now=history.now).queue() for one in (original, anonymous)]
    shown = [[(one.outcome, one.reason, len(one.nodes)) for one in queue] for queue in answers]
    assert shown[0] == shown[1]
    written = encode_snapshot(anonymous, taken=0.0).decode()
    assert not re.search(r"job-\d", written)
    assert "team" not in written


def test_what_people_wrote_is_gone_and_terms_stay() -> None:
    plan = Plan("uid-1", 1, {ReplicaKey("worker", 0): "gpu-7"}, why="because of project x")
    made = (
        job(name="secret-project")
        .worker(1, cpu="1", spec={"nodeSelector": {"corp.example/rack": "r7"}})
        .annotated(names.PLAN, plan.encode())
        .annotated(names.STATE, JobState(excluded={"gpu-7": 9.0}).encode(job_uid="uid-1"))
        .annotated(names.METRICS, "stdout:secret=(?P<value>.)")
        .annotated(names.COLOCATION, "required")
        .annotated("corp.example/owner", "somebody")
    )
    nodes = (node("gpu-7", labels={"corp.example/rack": "r7", "kubernetes.io/os": "linux"}),)
    found = anonymized(Snapshot(nodes=nodes, jobs=(made.build(),)))
    written = encode_snapshot(found, taken=0.0).decode()
    for word in ("secret", "gpu-7", "corp", "r7", "somebody", "project", "linux"):
        assert word not in written
    (one,) = found.jobs
    assert one.annotations[names.COLOCATION] == "required"
    assert "kubernetes.io/os" in written
    assert found.nodes[0].name in one.annotations[names.PLAN]
    assert state_of(one).excluded == {found.nodes[0].name: 9.0}
    (group,) = one.groups
    ((key, value),) = group.constraints.node_selector
    assert found.nodes[0].labels[key] == value


def test_what_only_a_controller_knows_names_nothing_either() -> None:
    clocks = JobClocks(
        unbound={"secret-pod": 1.0}, unreserved=(UnreservedRecord("secret-node", 0, 1.0),)
    )
    found = anonymized(Snapshot(clocks={"secret-job": clocks}))
    assert "secret" not in encode_snapshot(found, taken=0.0).decode()


def test_what_the_companion_may_do_stays() -> None:
    spec = {"companion": {"resize": {"mode": "observe", "parameters": {"alpha": 0.1}}}}
    policy = parse_policy({"metadata": {"name": "gold"}, "spec": spec})
    (kept,) = anonymized(Snapshot(policies=(policy,))).policies
    assert kept.companion == policy.companion
    assert kept.name != policy.name
