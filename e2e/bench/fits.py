"""How often kfext's "fits" says what the real kube-scheduler and API server say.

Random nodes and pods, pinned to one node or free over four: kube-scheduler binds them or calls
them unschedulable. Random quotas: the API server takes a pod or refuses it. `by template` is what
kfext knows before there is a pod. `as told` are disagreements of a documented class:

* host address: a port on one address of a node counts as taken on all, so kfext is the stricter;
* pod affinity, topology spread, unbound volumes: not modelled, so kfext does not place jobs that
  have them; the verdict here is on the rest of the pod;
* set at admission: overhead and node selector of a RuntimeClass are in the pod and not in the
  template; kfext sees them when the pods exist, and plans anew before it releases them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from e2e.bench.bed import Bench
from e2e.bench.report import table
from e2e.harness import quota_verdicts, verdicts
from e2e.harness.odd_objects import AT_ADMISSION, HOST_ADDRESS
from e2e.harness.verdicts import Compared

_SEEDS = (101, 102, 103, 104, 105)


def measure(bench: Bench, *, quick: bool) -> str:
    """Return the tables: agreement by class, causes of refusals, agreement on quotas."""
    found = []
    for seed in _SEEDS[:1] if quick else _SEEDS:
        found += verdicts.compare(
            bench.testbed, seed=seed, nodes=60, pinned_rounds=5, free_rounds=4
        )
    admitted = quota_verdicts.compare(
        bench.testbed, seed=_SEEDS[0], namespaces=6 if quick else 40, pods=15
    )
    return "\n\n".join(
        [
            table(
                "kfext's verdict against kube-scheduler's",
                ("asks for", "pods", "bound", "agreed", "by template", "as told", "unexplained"),
                [
                    *(_row(word or "what kfext models", of) for word, of in by_class(found)),
                    _row("all", found),
                ],
            ),
            table(
                "What kube-scheduler refused for; a pod may have several causes",
                ("cause", "pods"),
                [(cause, str(count)) for cause, count in causes(found).most_common()],
            ),
            table(
                "kfext's quota headroom against the API server's admission",
                ("pods", "taken", "agreed", "refused otherwise"),
                [_quota_row(admitted)],
            ),
        ]
    )


def by_class(found: Sequence[Compared]) -> list[tuple[str, list[Compared]]]:
    """Return the comparisons by what is known of their pods."""
    words = sorted({pair.pod.known for pair in found})
    return [(word, [pair for pair in found if pair.pod.known == word]) for word in words]


def causes(found: Iterable[Compared]) -> Counter[str]:
    """Return how often kube-scheduler named each cause."""
    return Counter(cause for pair in found for cause in pair.causes)


def explained(pair: Compared) -> bool:
    """Whether a disagreement is of the documented class, and in the direction that it says."""
    if pair.pod.known == AT_ADMISSION:
        return pair.agreed
    if pair.pod.known == HOST_ADDRESS:
        return bool(pair.bound)
    return bool(pair.pod.known) and not pair.bound


def _row(word: str, found: Sequence[Compared]) -> tuple[str, ...]:
    differing = [pair for pair in found if not (pair.agreed and pair.template_agreed)]
    told = sum(explained(pair) for pair in differing)
    return (
        word,
        str(len(found)),
        str(sum(bool(pair.bound) for pair in found)),
        _share(sum(pair.agreed for pair in found), len(found)),
        _share(sum(pair.template_agreed for pair in found), len(found)),
        str(told),
        str(len(differing) - told),
    )


def _quota_row(found: Sequence[quota_verdicts.Admitted]) -> tuple[str, ...]:
    return (
        str(len(found)),
        str(sum(pair.taken for pair in found)),
        _share(sum(pair.agreed for pair in found), len(found)),
        str(sum(not pair.agreed for pair in found)),
    )


def _share(part: int, whole: int) -> str:
    return f"{part}/{whole} ({100 * part / whole:.1f} %)"
