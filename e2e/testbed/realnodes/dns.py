"""The cluster's DNS server, on the machine's address on the nodes' bridge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from e2e.testbed.realnodes import network

if TYPE_CHECKING:
    from e2e.testbed.cluster import Testbed

PROCESS = "coredns"

# Names live 5 seconds: pods of a resumed job come back under the same name elsewhere.
_CONFIG = """\
.:53 {{
    bind {address}
    errors
    hosts {{
{nodes}
        fallthrough
    }}
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {kubeconfig}
        ttl 5
    }}
}}
"""


def start(testbed: Testbed, nodes: int) -> None:
    """Serve the names of Services and pods, and those of the real nodes."""
    # A pod on the node's own network finds itself by the node's name.
    hosts = [f"{testbed.addresses.node(i)} {network.node_name(i)}" for i in range(nodes)]
    config = testbed.folder / "Corefile"
    config.write_text(
        _CONFIG.format(
            address=testbed.addresses.dns,
            nodes="\n".join(f"        {host}" for host in hosts),
            kubeconfig=testbed.kubeconfig,
        )
    )
    testbed.start_process([str(testbed.binary("coredns")), f"-conf={config}"], name=PROCESS)
