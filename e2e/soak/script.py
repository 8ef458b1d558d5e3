"""The actions of a soak, one after the other, whatever the state of the cluster.

The script has its own record of jobs and nodes; the classes that carry out the actions check
whether an action still makes sense. So each seed stands for one sequence of actions. `Mischief` has
the actions of policies, tenants, and people who pin or resize pods.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from e2e.soak import tenants
from e2e.soak.actions import DISTURBANCES
from e2e.soak.facts import BY_FORCE
from e2e.soak.inventory import WILD, Inventory
from e2e.soak.manifests import ELASTIC, PINNED, random_job

NAMESPACES = ("soak-a", "soak-b", "soak-quota")
REFUSED = ("pods", "pins", "patches", "jobs")
"""The kinds of writes that the API server may refuse: new pods, and kfext's pins of pods, patches
of pods, and patches of jobs."""
_LIMITS = (("6", "24Gi"), ("12", "8Gi"))
Object = dict[str, Any]
_STATUSES = (409, 429, 500)
_MAX_WORKERS = 12


@dataclass
class Mischief:
    """Draws the arguments of actions: the method `_NAME` for `NAME` of PodActions and Tenants."""

    dice: random.Random
    inventory: Inventory

    def __post_init__(self) -> None:
        self._step = self._created = 0

    def _new_name(self, what: str) -> str:
        self._created += 1
        return f"{what}-{self._created}"

    # --- admission --------------------------------------------------------------------------------

    def _refuse_here(self) -> tuple[Any, ...]:
        namespace = self.dice.choice(NAMESPACES)
        self.inventory.refusing.append(namespace)
        return namespace, self.dice.choice(REFUSED)

    def _admit_here(self) -> tuple[Any, ...]:
        return (self.inventory.refusing.pop(),)

    def _limit(self) -> tuple[Any, ...]:
        namespace = self.dice.choice(
            [name for name in NAMESPACES if name not in self.inventory.limits]
        )
        self.inventory.limits.append(namespace)
        return namespace, *self.dice.choice(_LIMITS)

    def _unlimit(self) -> tuple[Any, ...]:
        return (self.inventory.limits.pop(self.dice.randrange(len(self.inventory.limits))),)

    # --- strangers --------------------------------------------------------------------------------

    def _pin_stranger(self) -> tuple[Any, ...]:
        pod = (self.dice.choice((*NAMESPACES, WILD)), self._new_name("stranger"))
        self.inventory.strangers.append(pod)
        return *pod, self.dice.choice(self.inventory.nodes), self.dice.choice(PINNED)

    def _drop_stranger(self) -> tuple[Any, ...]:
        return self.inventory.strangers.pop(self.dice.randrange(len(self.inventory.strangers)))

    def _pin_gated(self) -> tuple[Any, ...]:
        return self.dice.random(), self.dice.choice(self.inventory.nodes)

    def _resize(self) -> tuple[Any, ...]:
        name = self.dice.choice(self.inventory.operator_jobs)
        return *self.inventory.jobs[name], name, self.dice.random(), self.dice.random() < 0.5

    # --- tenants ----------------------------------------------------------------------------------

    def _forge(self) -> tuple[Any, ...]:
        name = self.dice.choice(self.inventory.operator_jobs)
        mark = self.dice.choice(tenants.MARKS)
        return *self.inventory.jobs[name], name, mark, self.dice.choice(self.inventory.nodes)

    def _submit_forged(self) -> tuple[Any, ...]:
        namespace = self.dice.choice((NAMESPACES[0], WILD))
        forgery, kind = (
            self.dice.choice(tenants.FORGERIES),
            self.dice.choice(("PyTorchJob", "TFJob")),
        )
        name = self._new_name(forgery)
        self.inventory.forged.append((namespace, kind, name))
        return namespace, tenants.forged_job(name, forgery, kind=kind, size=self.dice.randint(1, 4))

    def _drop_forged(self) -> tuple[Any, ...]:
        return self.inventory.forged.pop(self.dice.randrange(len(self.inventory.forged)))

    def _plant(self) -> tuple[Any, ...]:
        job = self.dice.choice(self.inventory.unplaced)
        return *job, self.dice.sample(self.inventory.nodes, 2)

    def _stray(self) -> tuple[Any, ...]:
        name = self.dice.choice(self.inventory.operator_jobs)
        victim = (*self.inventory.jobs[name], name)
        pod = (WILD, self._new_name("stray"))
        self.inventory.strays.append(pod)
        return *pod, victim

    def _drop_stray(self) -> tuple[Any, ...]:
        return self.inventory.strays.pop(self.dice.randrange(len(self.inventory.strays)))


@dataclass(frozen=True)
class Action:
    """An action: the name of a method of a class that carries out actions, and its arguments."""

    name: str
    arguments: tuple[Any, ...] = ()

    def __str__(self) -> str:
        texts = [
            str(argument if isinstance(argument, str | int | float) else "...")
            for argument in self.arguments
        ]
        return f"{self.name}({', '.join(texts)})"


@dataclass
class Script(Mischief):
    """An endless iterator of actions. `scheduled`: actions that must follow, each with its step."""

    scheduled: list[tuple[int, Action]] = field(default_factory=list)

    def __iter__(self) -> Iterator[Action]:
        return self

    def __next__(self) -> Action:
        self._step += 1
        for step, action in self.scheduled:
            if step <= self._step:
                self.scheduled.remove((step, action))
                return action
        weights = self.inventory.weights(busy=bool(self.scheduled))
        (name,) = self.dice.choices(list(weights), weights=list(weights.values()))
        return Action(name, getattr(self, f"_{name}")())

    # --- jobs -------------------------------------------------------------------------------------

    def _submit(self) -> tuple[Any, ...]:
        (namespace,) = self.dice.choices(NAMESPACES, weights=(5, 3, 1))
        return self._job_submission(self._new_name("job"), namespace)

    def _job_submission(self, name: str, namespace: str) -> tuple[Any, ...]:
        manifest = random_job(self.dice, name)
        self.inventory.jobs[name] = (namespace, manifest["kind"])
        (
            self.inventory.locked.add
            if "schedulingGates" in str(manifest)
            else self.inventory.locked.discard
        )(name)
        self.inventory.sizes.pop(name, None)
        if manifest["spec"].get("enableDynamicWorker"):
            sizes = manifest["metadata"]["annotations"].get(ELASTIC)
            self.inventory.sizes |= {name: sizes} if sizes else {}
        return namespace, manifest

    def _random_job(self) -> tuple[str, str, str]:
        name = self.dice.choice(self.inventory.alive)
        return name, *self.inventory.jobs[name]

    def _delete(self) -> tuple[Any, ...]:
        return self._removed_job(self._random_job()[0])

    def _sweep(self) -> tuple[Any, ...]:
        return self._removed_job(self.dice.choice(sorted(self.inventory.ended)))

    def _removed_job(self, name: str) -> tuple[Any, ...]:
        namespace, kind = self.inventory.remove(name)
        return namespace, kind, name

    def _resubmit(self) -> tuple[Any, ...]:
        """Delete a job and at once submit a new job under its name, perhaps of a different kind."""
        namespace, kind, name = self._delete()
        return kind, *self._job_submission(name, namespace)

    def _finish(self) -> tuple[Any, ...]:
        """End a job's first pod, or all its pods; the job remains until it is deleted."""
        name, namespace, kind = self._random_job()
        all_pods = self.dice.random() < 0.7
        if all_pods:
            self.inventory.ended.add(name)
        return namespace, kind, name, all_pods

    def _suspend(self) -> tuple[Any, ...]:
        name, namespace, kind = self._random_job()
        self.inventory.suspended.add(name)
        return namespace, kind, name

    def _resume(self) -> tuple[Any, ...]:
        name = self.dice.choice(sorted(self.inventory.suspended))
        self.inventory.suspended.discard(name)
        namespace, kind = self.inventory.jobs[name]
        return namespace, kind, name

    def _colocation(self) -> tuple[Any, ...]:
        name, namespace, kind = self._random_job()
        (value,) = self.dice.choices(("preferred", "required", "off"), weights=(5, 4, 1))
        return namespace, kind, name, value

    def _set_workers(self) -> tuple[Any, ...]:
        """Set a job's number of workers as a person, perhaps to a number outside its range."""
        name = self.dice.choice(self.inventory.elastic)
        return *self.inventory.jobs[name], name, self.dice.randint(1, _MAX_WORKERS)

    def _opt(self) -> tuple[Any, ...]:
        name = self.dice.choice(self.inventory.elastic)
        opts_out = self.dice.random() < 0.4
        return *self.inventory.jobs[name], name, "off" if opts_out else self.inventory.sizes[name]

    def _lift_gate(self) -> tuple[Any, ...]:
        name = self.dice.choice(sorted(self.inventory.locked))
        self.inventory.locked.discard(name)
        namespace, kind = self.inventory.jobs[name]
        return namespace, kind, name

    def _upset(self) -> tuple[Any, ...]:
        return (
            self.dice.choice(DISTURBANCES),
            self.dice.random(),
            self.dice.randint(1, _MAX_WORKERS),
        )

    # --- nodes ------------------------------------------------------------------------------------

    def _thief(self) -> tuple[Any, ...]:
        thief = (self.dice.choice(NAMESPACES), self._new_name("thief"))
        self.inventory.thieves.append(thief)
        return *thief, self.dice.choice((*self.inventory.nodes, "")), self.dice.randint(1, 6)

    def _catch_thief(self) -> tuple[Any, ...]:
        return self.inventory.thieves.pop(self.dice.randrange(len(self.inventory.thieves)))

    def _lose_node(self) -> tuple[Any, ...]:
        name = self.dice.choice(self.inventory.nodes)
        self.inventory.nodes.remove(name)
        self.inventory.troubled.pop(name, None)
        self.inventory.drained.pop(name, None)
        return (name,)

    def _add_node(self) -> tuple[Any, ...]:
        self.inventory.nodes.append(self._new_name("new"))
        return (self.inventory.nodes[-1],)

    def _trouble_node(self) -> tuple[Any, ...]:
        name = self.dice.choice(self.inventory.healthy)
        (trouble,) = self.dice.choices(("cordon", "taint", "not_ready"), weights=(4, 2, 2))
        self.inventory.troubled[name] = trouble
        return name, trouble

    def _drain_node(self) -> tuple[Any, ...]:
        name = self.dice.choice(self.inventory.healthy)
        self.inventory.drained[name] = self.dice.choice(("", BY_FORCE))
        return name, self.inventory.drained[name]

    def _uncordon(self) -> tuple[Any, ...]:
        name = self.dice.choice(sorted(self.inventory.drained))
        del self.inventory.drained[name]
        return (name,)

    def _heal_node(self) -> tuple[Any, ...]:
        name = self.dice.choice(sorted(self.inventory.troubled))
        return name, self.inventory.troubled.pop(name)

    # --- kfext itself -----------------------------------------------------------------------------

    def _schedule(self, steps: int, name: str) -> None:
        self.scheduled.append((self._step + steps, Action(name)))

    def _kill_controller(self) -> tuple[Any, ...]:
        return (self.dice.random() < 0.3,)

    def _pause_controller(self) -> tuple[Any, ...]:
        # Now and then for longer than the webhooks trust a Lease that is not renewed.
        steps = self.dice.randint(80, 110) if self.dice.random() < 0.2 else self.dice.randint(4, 20)
        self._schedule(steps, "continue_controller")
        return ()

    def _kill_webhook(self) -> tuple[Any, ...]:
        self._schedule(self.dice.randint(3, 12), "start_webhook")
        return ()

    def _cut_watches(self) -> tuple[Any, ...]:
        return ()

    def _refuse(self) -> tuple[Any, ...]:
        """Answer some writes with an error, whether or not they are carried out."""
        status = self.dice.choice(_STATUSES)
        return status, self.dice.randint(1, 12), self.dice.random() < 0.3
