"""Many small gangs on the move at once, and what must be true of them when they have arrived."""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from e2e.harness.faults import unsuspend_patch
from e2e.harness.jobs import workers
from e2e.harness.kube import Object
from e2e.harness.space import Space
from kfext import names

PODS = 2
"""Pods of each gang, with one GPU each."""
_NODE_GPUS = 16
_IN_FLIGHT = 8
_PATIENCE_SECONDS = 300.0


class Moving:
    """`count` gangs of PODS pods, and nodes that hold exactly these: one pod put wrong shows."""

    def __init__(self, space: Space, count: int) -> None:
        self.space = space
        self.names = [f"gang-{number:03}" for number in range(count)]
        space.nodes(-(-count * PODS // _NODE_GPUS), cpu="64", memory="256Gi", gpu=str(_NODE_GPUS))

    def submit(self, names_of: Sequence[str] | None = None) -> None:
        """Submit all gangs, or those that are named, some at once."""
        each = {"nvidia.com/gpu": "1", "cpu": "1"}
        jobs = [workers(name, PODS, each=each) for name in names_of or self.names]
        with ThreadPoolExecutor(_IN_FLIGHT) as pool:
            list(pool.map(self.space.submit, jobs))

    def started(self) -> Counter[str]:
        """Return how many times each job was unsuspended under a plan, by any controller."""
        done = self.space.kfext.writes(unsuspend_patch(self.space.name))
        return Counter(one.path.rsplit("/", 1)[-1] for one in done)

    def wait_placed(self) -> None:
        """Wait until every gang is whole, bound, and said to be Placed."""
        self.space.patiently(self._all_bound, seconds=_PATIENCE_SECONDS)
        self.space.patiently(lambda: self._phases() == {"Placed"}, seconds=_PATIENCE_SECONDS)

    def check(self) -> None:
        """Nothing was lost and nothing was done twice."""
        pods = self.space.pods(ending=True)
        assert self.started() == Counter(dict.fromkeys(self.names, 1))
        assert self.space.pins() == Counter(pod["metadata"]["name"] for pod in pods)
        load = Counter(pod["spec"]["nodeName"] for pod in pods)
        assert max(load.values()) <= _NODE_GPUS, load
        homes: dict[str, set[str]] = {}
        for pod in pods:
            homes.setdefault(_job_of(pod), set()).add(pod["spec"]["nodeName"])
        assert [job for job, nodes in homes.items() if len(nodes) > 1] == []

    def _all_bound(self) -> bool:
        pods = self.space.pods(ending=True)
        whole = Counter(_job_of(pod) for pod in pods if pod["spec"].get("nodeName"))
        return len(pods) == PODS * len(self.names) and whole == dict.fromkeys(self.names, PODS)

    def _phases(self) -> set[str]:
        plans = self.space.kube.items(self.space.path("trainingplans"))
        told = {plan["status"].get("phase", "") for plan in plans if "status" in plan}
        return told if len(plans) == len(self.names) else set()


def _job_of(pod: Object) -> str:
    found: str = pod["metadata"]["labels"][names.JOB_NAME]
    return found
