"""Host ports that other pods use, or that all pods of a gang need: the gang moves or waits."""

from e2e.harness.jobs import specs, suspended, template, workers
from e2e.harness.kube import Object
from e2e.harness.pods import FOREIGN_GATE, HOST, master_port, remove_foreign_gate
from e2e.harness.space import Space

PORT = 8470
# Pods with limits equal to their requests are placed on the fullest node.
GUARANTEED = {"cpu": "1", "memory": "1Gi"}


def use_port(space: Space, name: str, node: str, *, port: int = PORT) -> None:
    """Create a pod without a job that uses a port of a node; no scheduler binds it."""
    ports = [{"containerPort": port, "hostPort": port}]
    resources = {"requests": {"cpu": "1"}}
    container = {"name": "main", "image": "none", "ports": ports, "resources": resources}
    spec = {"nodeName": node, "containers": [container]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    space.kube.create(space.path("pods"), body)


def serving(name: str, count: int, *, pod: Object | None = None) -> Object:
    """Return a job with a master that uses a port of its node."""
    manifest = workers(name, count, each=GUARANTEED, pod=pod)
    ports = [{"containerPort": PORT, "hostPort": PORT, "name": "serve"}]
    template(manifest, "Master")["spec"]["containers"][0]["ports"] = ports
    return manifest


def test_a_gang_avoids_the_node_where_another_pod_uses_its_port(space: Space) -> None:
    fuller, emptier = space.nodes(2, cpu="8", memory="64Gi")
    use_port(space, "holder", fuller)
    space.submit(serving("gang", 3))
    assert set(space.bound("gang", 3).values()) == {emptier}
    assert set(space.pins().values()) == {1}


def test_a_gated_gang_is_planned_again_if_its_port_is_used_on_the_planned_node(
    space: Space,
) -> None:
    space.nodes(2, cpu="8", memory="64Gi")
    space.submit(serving("gang", 3, pod=FOREIGN_GATE))
    (planned,) = space.phase("gang", "Gated")["nodes"]
    use_port(space, "thief", planned)
    remove_foreign_gate(space, "gang")
    nodes_by_pod = space.bound("gang", 3)
    assert len(set(nodes_by_pod.values())) == 1
    assert planned not in nodes_by_pod.values()
    assert space.pins() == dict.fromkeys(nodes_by_pod, 1)
    assert space.starts() == 1


def test_pods_with_a_host_network_start_on_different_nodes(space: Space) -> None:
    space.nodes(3, cpu="8", memory="64Gi")
    space.submit(workers("rdma", 3, each=GUARANTEED, pod={"hostNetwork": True}))
    nodes_by_pod = space.bound("rdma", 3)
    assert len(set(nodes_by_pod.values())) == 3
    assert space.starts() == 1


def test_two_pods_with_a_host_network_do_not_start_on_one_node(space: Space) -> None:
    space.nodes(1, cpu="8", memory="64Gi")
    required = {"kfext.dev/colocation": "required"}
    space.submit(
        workers("rdma", 2, each=GUARANTEED, pod={"hostNetwork": True}, annotations=required)
    )
    view = space.phase("rdma", "Queued")
    assert view["reason"] == "TooBig"
    assert "2 of its pods want host port 23456, which a node has only once" in view["message"]
    assert space.starts() == 0


def test_a_gang_with_a_port_that_is_used_everywhere_waits_without_a_reservation(
    space: Space,
) -> None:
    (node,) = space.nodes(1, cpu="8", memory="64Gi")
    space.policy(placement={"reserveAfter": "1s"})
    use_port(space, "holder", node)
    space.submit(serving("gang", 5))
    view = space.phase("gang", "Queued")
    assert view["reason"] == "NoRoom"
    assert f"host port {PORT} is taken on 1 of the eligible nodes" in view["message"]
    space.submit(workers("runs", 3, each=GUARANTEED))
    space.phase("runs", "Placed")
    space.submit(workers("next", 7, each=GUARANTEED))
    # The gang has waited longer, and would otherwise have the reservation.
    space.until(
        lambda: "is reserved for it until PyTorchJob" in space.view("next").get("message", ""),
        "the next job has the reservation",
    )
    space.kube.delete(space.path("pytorchjobs", "runs"))
    assert set(space.bound("next", 7).values()) == {node}
    assert suspended(space.job("gang"))
    space.kube.delete(space.path("pytorchjobs", "next"))
    space.kube.delete(space.path("pods", "holder"), grace=0)
    assert set(space.bound("gang", 5).values()) == {node}
    assert space.starts() == 3


def test_a_port_that_kfext_chose_and_another_pod_took_is_replaced(space: Space) -> None:
    (node,) = space.nodes(1, cpu="8", memory="64Gi")
    space.policy(network={"portRange": "20000-20001"})
    space.submit(workers("gang", 2, each=GUARANTEED, annotations=HOST, pod=FOREIGN_GATE))
    space.phase("gang", "Gated")
    (master,) = specs(space.job("gang"))["Master"]["template"]["spec"]["containers"]
    chosen = master["ports"][0]["containerPort"]
    use_port(space, "thief", node, port=chosen)
    remove_foreign_gate(space, "gang")
    space.until(lambda: space.starts() == 2, "it is started again")
    space.phase("gang", "Gated")
    remove_foreign_gate(space, "gang")
    assert {master_port(space, "gang"), chosen} == {20000, 20001}


def test_a_job_that_its_user_put_on_the_host_network_is_not_started_without_enough_nodes(
    space: Space,
) -> None:
    """The operator adds its port to every pod, although no template has it."""
    space.nodes(2, cpu="8", memory="64Gi")
    space.policy(placement={"releaseAfter": "5s"})
    space.submit(workers("gang", 3, each=GUARANTEED, pod={"hostNetwork": True}))
    assert "TooBig" in space.phase("gang", "Released")["message"]
    assert space.starts() == 0
    space.submit(workers("pair", 2, each=GUARANTEED, pod={"hostNetwork": True}))
    space.kube.delete(space.path("pytorchjobs", "gang"))
    assert len(set(space.bound("pair", 2).values())) == 2
