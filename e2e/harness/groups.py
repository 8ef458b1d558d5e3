"""Which cases of a parallel run go to the same process: those that share a cluster or a set-up."""

from xdist.scheduler import LoadScopeScheduling

_REAL = "cases/real/"


class GroupScheduling(LoadScopeScheduling):
    """Gives all cases on real nodes to one process, and of the others those of a file.

    Not by marks and `--dist loadgroup`: xdist 3.8 hands these on within the ids of cases, which
    pytest has not let it change since 9.2. Each case is then a group of its own, without a word,
    and both processes make the cluster of real nodes and every set-up that a file shares.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def group_of(nodeid: str) -> str:
    """Return the group of a case: its file, or the cluster that several files share."""
    file = nodeid.partition("::")[0]
    return _REAL if _REAL in file else file
