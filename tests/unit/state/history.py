"""A controller's life in random steps, on a small model of the API server.

The planner is the real planner. Jobs, pods and nodes change as users, the operator and
kube-scheduler change them; the planner's steps are written at once or later, or are refused.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import currently_in_test_context, note
from hypothesis import strategies as st

from kfext import names
from kfext.core.admission.gpu import with_gpu_share
from kfext.core.ledger.capacity_hold import HoldKind
from kfext.core.lifecycle.steps import Step, job_operations, pod_writes
from kfext.core.patches.json_patch import patched
from kfext.core.placement.gang import members_of
from kfext.errors import ApiError, NotFound
from kfext.model.constraints import Requirement, Term
from kfext.model.gang_terms import GangTerm
from kfext.model.gpu import UNITS, reservation_of, resource_of
from kfext.model.job import parse_job
from kfext.model.moment import Moment
from kfext.model.namespace import Namespace
from kfext.model.node import Node
from kfext.model.plan import NO_SLOTS, Places
from kfext.model.pod import parse_pod
from kfext.model.policy import parse_policy
from kfext.model.priority import PriorityClass
from kfext.model.quota import Quota, parse_quota
from kfext.model.shared_gpu import CardSharer
from kfext.model.timestamps import written_time
from kfext.model.volume import StorageClass, Volume, VolumeClaim
from kfext.sim.objects import copied
from kfext.state.mirror.cards import Unreserve
from kfext.state.mirror.tracked_job import TrackedJob
from kfext.state.planner.planner import Planner
from tests.builders import JobBuilder, Raw, affinity_to, apart, job, node, raw_pod, together, using
from tests.gpu_builders import slot

TEAM = Namespace("team", labels={names.MANAGED: "true"})
CLASSES = {
    "high": PriorityClass("high", 100),
    "patient": PriorityClass("patient", 50, preempts=False),
}

ON_A = (Term((Requirement("name", "In", ("a",)),)),)
CLAIMS = (
    None,
    VolumeClaim("team", "data"),
    VolumeClaim("team", "data", storage_class="late"),
    VolumeClaim("team", "data", volume="disk", bound=True),
    VolumeClaim("team", "data", volume="disk", bound=True),
)
VOLUMES = (None, Volume("disk", "team"), Volume("disk", "team", terms=ON_A))

jobs = st.fixed_dictionaries(
    {
        "workers": st.integers(1, 8),
        "cpu": st.sampled_from("112"),
        "bursts": st.booleans(),
        "colocation": st.sampled_from(["", "", "preferred", "required"]),
        "network": st.sampled_from(["", "", "", "host"]),
        "elastic": st.booleans(),
        "priority": st.sampled_from(["", "", "high", "patient"]),
        "deadline": st.sampled_from([0, 0, 100, 1000]),
        "claim": st.sampled_from(["", "", "", "data"]),
        "terms": st.sampled_from([None, None, None, apart, together]),
        "gpu": st.sampled_from(["", "", "", "low", "high", "whole"]),
    }
)


def admitted(name: str, *, uid: str, created: float, **fields: Any) -> JobBuilder:
    """Return a job after admission; `fields`: as `jobs` draws them."""
    limit = "" if fields.get("bursts") else fields["cpu"]
    spec = using(fields["claim"]) if fields["claim"] else {}
    spec |= fields["terms"](GangTerm(name)) if fields["terms"] else {}
    gpu = fields.get("gpu", "")
    elastic = fields["elastic"] and not gpu
    workers = 1 if gpu == "low" else fields["workers"]
    builder = job(name=name, uid=uid).worker(
        workers, cpu=fields["cpu"], cpu_limit=limit, gpus=1 if gpu else 0, spec=spec
    )
    builder.held().created(created)
    keys = ("colocation", "network")
    annotations = {f"kfext.dev/{key}": str(fields[key]) for key in keys if fields[key]}
    if elastic:
        annotations[names.ELASTIC] = "1-9"
    if gpu in {"low", "high"}:
        annotations |= {names.GPU_SHARE: "0.5", names.GPU_PRIORITY: gpu, names.GPU_MIN_SHARE: "0"}
        annotations |= {names.GPU_MEMORY: fields["memory"]} if fields.get("memory") else {}
    builder.raw["metadata"]["annotations"] |= annotations
    template = builder.raw["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    template["metadata"] = {"annotations": {names.COLOCATION: "preferred", **annotations}}
    policy = builder.raw["spec"]["runPolicy"]
    if elastic:
        builder.raw["spec"]["elasticPolicy"] = {"minReplicas": 1}
    if fields["priority"]:
        template["spec"]["priorityClassName"] = fields["priority"]
    if fields["deadline"]:
        policy["activeDeadlineSeconds"] = fields["deadline"]
    return builder


def sharing_node(name: str, *, cpu: str, cordoned: bool = False) -> Node:
    """Return a node with two cards that may be shared."""
    units = {resource_of(slot): str(UNITS) for slot in range(2)}
    return node(name, cpu=cpu, gpus=2, cordoned=cordoned, **units)


class History:
    """A planner, the objects that it sees, and its pending writes."""

    def __init__(self, draw: st.DataObject) -> None:
        self.draw = draw
        self.now = 1000.0
        self.version = 1
        self.jobs: dict[str, Raw] = {}
        self.pods: dict[str, Raw] = {}
        self.nodes = {"a": sharing_node("a", cpu="8"), "b": sharing_node("b", cpu="4")}
        places = [(name, number) for name in "ab" for number in range(2)]
        self.cards = {place: slot(*place) for place in places}
        self.namespace = TEAM
        self.policy: Raw | None = None
        self.quota: Quota | None = None
        self.claim: VolumeClaim | None = None
        self.volume: Volume | None = None
        self.classes = dict(CLASSES)
        self.writes: list[tuple[TrackedJob, Step]] = []
        self.count = 0
        self.assigned: Raw = {}
        self.planner = Planner()
        self.restart()

    @property
    def moment(self) -> Moment:
        """The present time; the two clocks are independent."""
        return Moment(wall=self.now, monotonic=self.now - 700.0)

    # --- kfext ------------------------------------------------------------------------------------

    def restart(self) -> None:
        """Kill the controller; its successor reads everything again."""
        self.planner, self.writes = Planner(most=self.draw.draw(st.sampled_from([1, 2, 64]))), []
        planner = self.planner
        for priority_class in self.classes.values():
            planner.queue.observe_class(None, priority_class)
        planner.settings.observe_namespace(None, self.namespace)
        if self.policy is not None:
            planner.settings.observe_policy(parse_policy(self.policy))
        if self.quota is not None:
            planner.queue.quotas.observe_quota(None, self.quota)
        planner.cluster.volumes.observe_class(None, StorageClass("late", delayed=True))
        planner.cluster.volumes.observe_claim(None, self.claim)
        planner.cluster.volumes.observe_volume(None, self.volume)
        for shown in self.nodes.values():
            planner.cluster.observe_node(None, shown)
        for card in self.cards.values():
            planner.cluster.observe_card(None, card)
        for raw in self.pods.values():
            planner.cluster.observe_pod(None, parse_pod(raw))
        for raw in self.jobs.values():
            planner.cluster.observe_job(raw)

    def tick(self) -> None:
        tick = self.planner.tick(self.moment)
        self.writes += tick.steps
        assert not tick.failures, tick.failures

    def end_round(self) -> None:
        """Decide until no decision is left: then only changed jobs are decided on."""
        tick = self.planner.tick(self.moment)
        self.writes += tick.steps
        while tick.remainder:
            tick = self.planner.tick(self.moment)
            self.writes += tick.steps

    def write(self) -> None:
        """Carry out a step, or refuse it."""
        if not self.writes:
            return
        at = self.draw.draw(st.integers(0, len(self.writes) - 1), label="which write")
        tracked, step = self.writes.pop(at)
        outcome = self.draw.draw(st.sampled_from(["done", "done", "done", "refused", "denied"]))
        if currently_in_test_context():
            note(f"  {type(step).__name__} of {tracked.job.name} is {outcome}")
        if outcome == "done":
            try:
                self._apply(tracked, step)
            except ApiError:
                outcome = "refused"
        self.planner.finish(
            tracked,
            self.moment,
            complete=outcome == "done",
            refused=outcome != "done",
            final="denied" if outcome == "denied" else "",
        )

    def _apply(self, tracked: TrackedJob, step: Step) -> None:
        uid, operations = tracked.job.uid, job_operations(step, tracked.raw, tracked.job)
        if operations is not None:
            if uid not in self.jobs:
                raise NotFound(status=404, reason="NotFound", message=uid)
            self.put_job(patched(self.jobs[uid], operations))
        for pod, change in pod_writes(step, tracked.job):
            if change is None:
                self.remove_pod(pod.uid)
            elif pod.uid in self.pods:
                assert isinstance(change, list), "no step of a tick resizes pods"
                self.put_pod(patched(self.pods[pod.uid], change))

    # --- objects ----------------------------------------------------------------------------------

    def stamped(self, raw: Raw) -> Raw:
        self.version += 1
        raw["metadata"]["resourceVersion"] = str(self.version)
        return raw

    def put_job(self, raw: Raw) -> None:
        self.jobs[raw["metadata"]["uid"]] = self.stamped(raw)
        self.planner.cluster.observe_job(copied(raw))

    def put_pod(self, raw: Raw) -> None:
        uid = raw["metadata"]["uid"]
        old = parse_pod(self.pods[uid]) if uid in self.pods else None
        self.pods[uid] = self.stamped(copied(raw))
        self.planner.cluster.observe_pod(old, parse_pod(self.pods[uid]))

    def remove_pod(self, uid: str) -> None:
        raw = self.pods.pop(uid, None)
        if raw is not None:
            self.planner.cluster.observe_pod(parse_pod(raw), None)

    def _pick(self, among: dict[str, Raw]) -> str | None:
        return self.draw.draw(st.sampled_from(sorted(among)), label="which") if among else None

    # --- acts of users, the operator, kube-scheduler and the cloud --------------------------------

    def submit(self) -> None:
        self.count += 1
        name = f"job-{self.count}"
        fields = self.draw.draw(jobs, label=name)
        self.put_job(admitted(name, uid=name, created=self.now, **fields).raw)

    def edit(self) -> None:
        """A user sets an annotation to a valid or malformed value, or removes it."""
        if (uid := self._pick(self.jobs)) is None:
            return
        raw = copied(self.jobs[uid])
        key, value = self.draw.draw(
            st.sampled_from(
                [
                    (names.COLOCATION, "required"),
                    (names.COLOCATION, "requierd"),
                    (names.COLOCATION, "off"),
                    (names.NETWORK, "host"),
                    (names.NETWORK, "hots"),
                    (names.ELASTIC, "2-4"),
                    (names.ELASTIC, "4-2"),
                    (names.COLOCATION, ""),
                ]
            )
        )
        raw["metadata"]["annotations"].pop(key, None)
        if value:
            raw["metadata"]["annotations"][key] = value
        self.put_job(raw)

    def suspend(self) -> None:
        """A user suspends or resumes a job."""
        if uid := self._pick(self.jobs):
            raw = copied(self.jobs[uid])
            policy = raw["spec"]["runPolicy"]
            policy["suspend"] = not policy.get("suspend")
            self.put_job(raw)

    def delete(self) -> None:
        if uid := self._pick(self.jobs):
            del self.jobs[uid]
            self.planner.cluster.forget_job(uid)
            for pod_uid, raw in list(self.pods.items()):
                if parse_pod(raw).owner_uid == uid:
                    self.remove_pod(pod_uid)

    def delete_before_its_pods(self) -> None:
        """A job is deleted, and its pods continue for their grace period."""
        if uid := self._pick(self.jobs):
            del self.jobs[uid]
            self.planner.cluster.forget_job(uid)
            for raw in [raw for raw in self.pods.values() if parse_pod(raw).owner_uid == uid]:
                changed = copied(raw)
                changed["metadata"]["deletionTimestamp"] = written_time(self.now)
                self.put_pod(changed)

    def end_pods(self) -> None:
        """The grace period of pods is over."""
        for uid, raw in list(self.pods.items()):
            if parse_pod(raw).deleting:
                self.remove_pod(uid)

    def finish(self) -> None:
        if uid := self._pick(self.jobs):
            raw = copied(self.jobs[uid])
            raw["status"] = {"conditions": [{"type": "Succeeded", "status": "True"}]}
            self.put_job(raw)

    def operate(self) -> None:
        """The operator creates pods of a running job, or confirms a suspend."""
        if (uid := self._pick(self.jobs)) is None:
            return
        self._create_pods(uid, most=self.draw.draw(st.integers(1, 5), label="pods"))

    def _create_pods(self, uid: str, *, most: int) -> None:
        job = parse_job(self.jobs[uid])
        assert job is not None
        owned = [pod_uid for pod_uid in self.pods if parse_pod(self.pods[pod_uid]).owner_uid == uid]
        if job.suspend:
            for pod_uid in owned:
                self.remove_pod(pod_uid)
            raw = copied(self.jobs[uid])
            since = {
                "type": "Suspended",
                "status": "True",
                "lastTransitionTime": written_time(self.now),
            }
            raw["status"] = {"conditions": [since]}
            self.put_job(raw)
        elif not job.finished:
            present = {parse_pod(self.pods[pod_uid]).replica for pod_uid in owned}
            missing = [key for key, _ in job.replicas() if key not in present]
            for key in missing[:most]:
                self.count += 1
                uid, spec = f"p-{self.count}", self.assigned
                made = raw_pod(job, key.type, key.index, gated=not job.released, uid=uid, spec=spec)
                template = self.jobs[job.uid]["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
                made["metadata"]["annotations"] = dict(template["metadata"]["annotations"])
                part = with_gpu_share(job.kind, made["metadata"], made["spec"])
                if not part.refusal:
                    self.put_pod({**made, "spec": part.spec})

    def bind(self) -> None:
        """kube-scheduler binds a pod that is no longer gated."""
        unbound = {
            uid: raw
            for uid, raw in self.pods.items()
            if not (parse_pod(raw).gates or parse_pod(raw).node_name)
        }
        if uid := self._pick(unbound):
            raw = copied(self.pods[uid])
            raw["spec"]["nodeName"] = parse_pod(raw).pinned_to or "a"
            self.put_pod(raw)

    def reserve(self) -> None:
        """GPUs are reserved and released as kfext requests, and the agents report them."""
        at = self.moment.monotonic
        for step in list(self.planner.card_steps(at)):
            if isinstance(step, Unreserve):
                self.remove_pod(step.pod.uid)
            else:
                self.put_pod(self._reservation(*step.place))
            self.planner.cards.finish(step, at)
        for place in self.cards:
            self._report(place)

    def _reservation(self, name: str, number: int) -> Raw:
        self.count += 1
        metadata = {
            "namespace": names.GPU_NAMESPACE,
            "name": reservation_of(name, number),
            "uid": f"reservation-{self.count}",
            "labels": {names.GPU_SLOT: str(number)},
        }
        amounts = {"requests": {names.NATIVE_GPU: "1"}}
        return {
            "metadata": metadata,
            "spec": {"nodeName": name, "containers": [{"resources": amounts}]},
            "status": {"phase": "Running"},
        }

    def _report(self, place: tuple[str, int], **fields: Any) -> None:
        name = reservation_of(*place)
        uids = [uid for uid, raw in self.pods.items() if raw["metadata"]["name"] == name]
        card = f"GPU-{place[1]}" if uids else ""
        old = self.cards[place]
        new = slot(*place, card=card, reservation=uids[0] if uids else "", **fields)
        self.cards[place] = new
        self.planner.cluster.observe_card(old, new)

    def report(self) -> None:
        """An agent reports a fault or a measurement of a card, valid until its next report."""
        place = self.draw.draw(st.sampled_from(sorted(self.cards)), label="card")
        kinds = st.sampled_from(["healthy", "moved", "busy", "evicted"])
        match self.draw.draw(kinds, label="what"):
            case "healthy":
                self._report(place, healthy=False)
            case "moved":
                self._report(place, moved=True)
            case "busy":
                self.measure()
            case _:
                sharers = tuple(CardSharer(uid, evict=True) for uid in sorted(self.pods))
                self._report(place, sharers=sharers)

    def measure(self) -> None:
        """The agents have measured the use of their cards."""
        busy = self.draw.draw(st.sampled_from([100, 400, 900]), label="busy")
        sharers = tuple(CardSharer(uid, busy=busy) for uid in sorted(self.pods))
        for place in self.cards:
            self._report(place, sharers=sharers)

    def lose_reservation(self) -> None:
        """A user deletes a reservation pod."""
        reservations = {uid: raw for uid, raw in self.pods.items() if uid.startswith("reservation")}
        if uid := self._pick(reservations):
            self.remove_pod(uid)

    def hold(self) -> None:
        """The companion holds nodes for a waiting job, because capacity will become free there."""
        waiting = {
            uid: raw for uid, raw in self.jobs.items() if self.planner.cluster.jobs[uid].waiting
        }
        if uid := self._pick(waiting):
            members = members_of(self.planner.cluster.jobs[uid].job)
            places = {member.key: self.draw.draw(st.sampled_from("ab")) for member in members}
            placement = Places(places, NO_SLOTS)
            self.planner.cluster.holds.hold(HoldKind.RESCUE, uid, members, placement)

    def foreign_pod(self) -> None:
        """A pod of no training job is created or deleted."""
        foreign = {uid: raw for uid, raw in self.pods.items() if uid.startswith("foreign")}
        if bool(foreign) and self.draw.draw(st.booleans(), label="deleted"):
            self.remove_pod(str(self._pick(foreign)))
            return
        self.count += 1
        uid = f"foreign-{self.count}"
        node_name = self.draw.draw(st.sampled_from("abc"))
        pinned = self.draw.draw(st.booleans(), label="only pinned")
        spec = {
            **({"affinity": affinity_to(node_name)} if pinned else {"nodeName": node_name}),
            "priority": self.draw.draw(st.sampled_from([0, 200])),
            "containers": [{"resources": {"requests": {"cpu": self.draw.draw(_cpus)}}}],
        }
        metadata = {
            "namespace": "x",
            "name": uid,
            "uid": uid,
            "creationTimestamp": written_time(self.now),
        }
        self.put_pod({"metadata": metadata, "spec": spec})

    def opt_out(self) -> None:
        """The namespace becomes unmanaged, unless it already was."""
        self._label(Namespace("team"))

    def opt_in(self) -> None:
        self._label(TEAM)

    def _label(self, namespace: Namespace) -> None:
        old, self.namespace = self.namespace, namespace
        self.planner.settings.observe_namespace(old, namespace)

    def change_node(self) -> None:
        name = self.draw.draw(st.sampled_from("abc"), label="node")
        old = self.nodes.pop(name, None)
        if old is None or self.draw.draw(st.booleans(), label="stays"):
            cpu = self.draw.draw(st.sampled_from("488"), label="cpu")
            self.nodes[name] = sharing_node(name, cpu=cpu, cordoned=self.draw.draw(st.booleans()))
        self.planner.cluster.observe_node(old, self.nodes.get(name))

    def change_quota(self) -> None:
        old, self.quota = self.quota, None
        if self.draw.draw(st.booleans(), label="quota"):
            used = str(self.draw.draw(st.integers(0, 6)))
            status = {"hard": {"pods": "8"}, "used": {"pods": used}}
            raw = {"metadata": {"namespace": "team", "name": "q"}, "status": status}
            self.quota = parse_quota(raw)
        self.planner.queue.quotas.observe_quota(old, self.quota)

    def change_admission(self) -> None:
        """A RuntimeClass makes new pods larger than their templates, or no longer does."""
        self.assigned = {} if self.assigned else {"overhead": {"cpu": "1"}}

    def change_claim(self) -> None:
        """The claim of some jobs is created, is bound, or is deleted."""
        old, self.claim = self.claim, self.draw.draw(st.sampled_from(CLAIMS), label="claim")
        self.planner.cluster.volumes.observe_claim(old, self.claim)

    def change_volume(self) -> None:
        """The volume of that claim is created, moves, or is deleted."""
        old, self.volume = self.volume, self.draw.draw(st.sampled_from(VOLUMES), label="volume")
        self.planner.cluster.volumes.observe_volume(old, self.volume)

    def change_policy(self) -> None:
        self.policy = {
            "metadata": {"name": "p"},
            "spec": {
                "settings": self.draw.draw(
                    st.sampled_from([{}, {"colocation": "required"}, {"network": "host"}])
                ),
                "placement": {
                    "reserveAfter": self.draw.draw(st.sampled_from(["0s", "90s", "5m"])),
                    "releaseAfter": self.draw.draw(st.sampled_from(["auto", "30s", "1h"])),
                    "assumedBurst": self.draw.draw(st.sampled_from(["1500m", "4"])),
                },
            },
        }
        self.planner.settings.observe_policy(parse_policy(self.policy))
        self.planner.cluster.mark_queue()

    def change_class(self) -> None:
        """A PriorityClass is deleted, or created again."""
        name = self.draw.draw(st.sampled_from(sorted(CLASSES)))
        old = self.classes.pop(name, None)
        if old is None:
            self.classes[name] = CLASSES[name]
        self.planner.queue.observe_class(old, self.classes.get(name))

    def catch_up(self) -> None:
        """All decisions are written without faults, and the operator creates all pods."""
        for _ in range(3):
            self.tick()
            while self.writes:
                tracked, step = self.writes.pop()
                try:
                    self._apply(tracked, step)
                except ApiError:
                    self.planner.finish(tracked, self.moment, refused=True)
                else:
                    self.planner.finish(tracked, self.moment)
            for uid in list(self.jobs):
                self._create_pods(uid, most=100)
            self.reserve()

    def wait_long(self) -> None:
        """Wait longer than any `reserveAfter`."""
        self.now += 400.0

    def wait(self) -> None:
        self.now += self.draw.draw(st.sampled_from([0.5, 3.0, 31.0, 61.0, 301.0]), label="seconds")


ACTS: tuple[Callable[[History], None], ...] = (
    *(History.submit, History.submit, History.submit, History.catch_up, History.catch_up),
    *(History.tick, History.tick, History.tick, History.write, History.write, History.write),
    *(History.operate, History.operate, History.bind, History.bind, History.wait, History.wait),
    *(History.edit, History.suspend, History.delete, History.finish, History.foreign_pod),
    *(History.change_node, History.change_quota, History.change_policy, History.change_class),
    *(History.change_admission, History.change_claim, History.change_volume),
    *(History.reserve, History.report, History.lose_reservation, History.hold),
    *(History.delete_before_its_pods, History.end_pods),
    *(History.opt_out, History.opt_in, History.restart),
)
CROWDED = (
    *(History.submit, History.submit, History.submit, History.catch_up, History.submit),
    *(History.submit, History.catch_up, History.wait_long, History.catch_up, History.submit),
)
"""First acts of a history, after which jobs wait; a job may have a reservation."""
_cpus = st.sampled_from("1234")
