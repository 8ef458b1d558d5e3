"""Random gangs and clusters. Amounts are small numbers; a node has at most 12 of a resource."""

from hypothesis import strategies as st

from kfext.core.placement.gang import Member
from kfext.model.constraints import Constraints
from kfext.model.gang_terms import GangTerm
from kfext.model.node import Node
from kfext.model.pod import ReplicaKey
from tests.unit.core.placement.answers import GPU

RESOURCES = ("cpu", "memory", "pods", GPU)

APART = GangTerm("train", namespace="team")

bursts = st.sampled_from([None, 0, 4])
"""The field `assumed_burst` of the limits of a gang."""
node_limits = st.sampled_from([None, 1, 2, 3])
"""The most nodes that a gang may use."""
some_amounts = st.fixed_dictionaries(
    {"pods": st.just(1)},
    optional={"cpu": st.integers(1, 6), "memory": st.integers(1, 6), GPU: st.integers(1, 3)},
)
_constraints = st.builds(
    Constraints,
    node_selector=st.sampled_from([(), (), (("zone", "a"),)]),
    host_ports=st.sampled_from([(), (), (), (("TCP", 80),)]),
    apart=st.sampled_from([(), (), (), (APART,)]),
)
_nodes = st.builds(
    lambda cpu, memory, gpus, pods, zone: (
        {"cpu": cpu, "memory": memory, GPU: gpus, "pods": pods},
        {"zone": zone},
    ),
    st.integers(0, 12),
    st.integers(0, 12),
    st.integers(0, 6),
    st.integers(0, 8),
    st.sampled_from("ab"),
)
some_nodes = st.lists(_nodes, min_size=1, max_size=6).map(
    lambda drawn: [Node(f"n{number}", *fields) for number, fields in enumerate(drawn)]
)
_cpu_limits = st.one_of(st.none(), st.integers(1, 8))
_groups = st.tuples(some_amounts, _constraints, st.integers(1, 5), st.booleans(), _cpu_limits)
some_members = st.lists(_groups, min_size=1, max_size=3).map(
    lambda drawn: [
        Member(
            key=ReplicaKey(f"type{kind}", index),
            requests=amounts,
            constraints=constraints,
            guaranteed=guaranteed,
            cpu_limit=amounts.get("cpu", 0) if guaranteed else cpu_limit,
        )
        for kind, (amounts, constraints, count, guaranteed, cpu_limit) in enumerate(drawn)
        for index in range(count)
    ]
)
