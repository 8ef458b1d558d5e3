"""How much of the machine each real node gets."""

_GIB = 2**30
# For control plane, kubelets, containerds and whoever watches: with less, the API server answers
# so late that what is measured is its hunger, not the jobs.
_RESERVED_CORES = 0.6
_RESERVED_SHARE = 0.1
_SMALLEST_CPU = 100
_ROUNDED_TO = 50
_RESERVED_MEMORY = 4 * _GIB
_MOST_MEMORY = 3 * _GIB
_LEAST_MEMORY = _GIB // 2


def cpu_budget(cores: int, nodes: int) -> int:
    """Return the millicores of each of `nodes` real nodes on a machine with `cores`."""
    reserved = max(_RESERVED_CORES, _RESERVED_SHARE * cores)
    each = (cores - reserved) * 1000 / nodes
    budget = int(each) // _ROUNDED_TO * _ROUNDED_TO
    if budget < _SMALLEST_CPU:
        raise ValueError(f"{nodes} real nodes are too many for {cores} cores: {each:.0f}m for each")
    return budget


def memory_budget(machine: int, nodes: int) -> int:
    """Return the bytes of memory of each of `nodes` real nodes on a machine of `machine` bytes."""
    budget = min(_MOST_MEMORY, (machine - _RESERVED_MEMORY) // nodes)
    if budget < _LEAST_MEMORY:
        raise ValueError(f"{nodes} real nodes are too many for {machine / _GIB:.1f} GiB of memory")
    return budget
