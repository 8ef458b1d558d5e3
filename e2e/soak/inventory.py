"""The cluster as the script believes it to be, and the weight of each possible next action."""

from dataclasses import dataclass, field

GPUS_PER_NODE = 8
"""The GPUs of a node; they mostly decide how many jobs fill the cluster."""
_PODS_PER_JOB = 6
_FULLNESS = 1.7
_MAX_LIMITS = 2
WILD = "soak-wild"
"""A namespace that is not managed; only tenants act there."""
_MAX_TROUBLED = 0.15
_WEIGHTS = {
    "submit": 0, "resubmit": 3, "delete": 6, "finish": 8, "sweep": 0, "suspend": 3, "resume": 0,
    "colocation": 3, "set_workers": 2, "opt": 2, "upset": 4, "lift_gate": 0,
    "thief": 4, "catch_thief": 0,
    "lose_node": 1.5, "add_node": 0, "trouble_node": 3, "heal_node": 0,
    "drain_node": 1, "uncordon": 0,
    "kill_controller": 1, "pause_controller": 1, "kill_webhook": 0.7, "cut_watches": 1.5,
    "refuse": 2, "refuse_here": 1.2, "admit_here": 0, "limit": 0.8, "unlimit": 0,
    "pin_stranger": 2, "drop_stranger": 0, "pin_gated": 2, "resize": 4,
    "forge": 3, "submit_forged": 2.5, "drop_forged": 0, "plant": 0, "stray": 1, "drop_stray": 0,
}  # fmt: skip
_JOB_ACTIONS = ("delete", "resubmit", "finish", "suspend", "colocation")
_OPERATOR_ACTIONS = ("resize", "forge", "stray")
_PROCESS_ACTIONS = ("kill_controller", "pause_controller", "kill_webhook")


@dataclass
class Inventory:
    """Jobs (namespace and kind by name) and their states, nodes, and foreign pods.

    `sizes`: the ranges that TFJobs with dynamic workers allow kfext. `ended`: jobs that succeeded.
    `suspended`: jobs that a person suspended. `locked`: jobs with a foreign gate. `thieves`: pods
    without a job that use GPUs. `strangers`: pods that a person pinned. `strays`: pods that name a
    job of a different namespace as owner. `forged`: jobs of tenants (namespace, kind, name).
    `refusing`, `limits`: namespaces with refused writes, and with a LimitRange. `troubled`: nodes
    with their fault. `drained`: nodes with the value of the taint.
    """

    nodes: list[str]
    jobs: dict[str, tuple[str, str]] = field(default_factory=dict)
    sizes: dict[str, str] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    suspended: set[str] = field(default_factory=set)
    locked: set[str] = field(default_factory=set)
    thieves: list[tuple[str, str]] = field(default_factory=list)
    troubled: dict[str, str] = field(default_factory=dict)
    drained: dict[str, str] = field(default_factory=dict)
    strangers: list[tuple[str, str]] = field(default_factory=list)
    strays: list[tuple[str, str]] = field(default_factory=list)
    forged: list[tuple[str, str, str]] = field(default_factory=list)
    refusing: list[str] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._wanted_nodes = len(self.nodes)
        self._target_jobs = max(4, int(_FULLNESS * len(self.nodes) * GPUS_PER_NODE / _PODS_PER_JOB))

    @property
    def alive(self) -> list[str]:
        return sorted(self.jobs.keys() - self.ended)

    @property
    def operator_jobs(self) -> list[str]:
        return [name for name in self.alive if self.jobs[name][1] != "TrainJob"]

    @property
    def elastic(self) -> list[str]:
        return sorted(self.sizes.keys() - self.ended)

    @property
    def healthy(self) -> list[str]:
        return [name for name in self.nodes if name not in {*self.troubled, *self.drained}]

    @property
    def unplaced(self) -> list[tuple[str, str, str]]:
        elsewhere = ("elsewhere", "giant")
        return [mark for mark in self.forged if mark[0] == WILD or mark[2].startswith(elsewhere)]

    def remove(self, job: str) -> tuple[str, str]:
        for names in (self.ended, self.suspended, self.locked):
            names.discard(job)
        self.sizes.pop(job, None)
        return self.jobs.pop(job)

    def weights(self, *, busy: bool) -> dict[str, float]:
        """Return the weight of each action; they lead to a full cluster that always changes.

        `busy`: a process of kfext is down, so no other process is brought down.
        """
        alive = len(self.alive)
        missing = self._target_jobs - alive
        weights = {
            **_WEIGHTS,
            "submit": 60 if missing > self._target_jobs // 2 else 26 if missing > 0 else 4,
            "sweep": len(self.ended) / 3,
            "resume": len(self.suspended),
            "lift_gate": 2 * len(self.locked),
            "catch_thief": len(self.thieves),
            "add_node": 3 * max(0, self._wanted_nodes - len(self.nodes)),
            "heal_node": 2 * len(self.troubled),
            # A drain lasts some minutes, which jobs need to save their work.
            "uncordon": 0.15 * len(self.drained),
            "admit_here": 0.6 * len(self.refusing),
            "unlimit": 0.4 * len(self.limits),
            "drop_stranger": len(self.strangers) / 8,
            "drop_stray": len(self.strays) / 4,
            "drop_forged": len(self.forged) / 8,
            "plant": 1.0 if self.unplaced else 0,
        }
        if not alive:
            weights |= dict.fromkeys(_JOB_ACTIONS, 0)
        if not self.operator_jobs:
            weights |= dict.fromkeys(_OPERATOR_ACTIONS, 0)
        if not self.elastic:
            weights |= dict.fromkeys(("set_workers", "opt"), 0)
        if len(self.healthy) <= self._wanted_nodes * (1 - _MAX_TROUBLED):
            weights |= dict.fromkeys(("trouble_node", "lose_node", "drain_node"), 0)
        if self.refusing:
            weights["refuse_here"] = 0
        if len(self.limits) >= _MAX_LIMITS:
            weights["limit"] = 0
        if busy:
            weights |= dict.fromkeys(_PROCESS_ACTIONS, 0)
        return {name: weight for name, weight in weights.items() if weight > 0}
