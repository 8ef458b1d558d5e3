import json
import socket
import threading
from pathlib import Path

from e2e.gpu.cpu_card import ASK, GRANT, REPORT, CpuCard


def client(path: Path, name: str) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.settimeout(20)
    peer.connect(str(path))
    peer.send(name.encode())
    return peer


def test_a_client_that_is_killed_while_it_waits_for_the_card_costs_nobody_else_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "card"
    card = CpuCard(path)
    killed = client(path, "killed")
    killed.send(ASK)
    killed.send(REPORT)
    killed.close()
    threading.Thread(target=card.serve, daemon=True).start()
    with client(path, "other") as other:
        other.send(ASK)
        assert other.recv(16) == GRANT
        other.send(REPORT)
        clients = json.loads(other.recv(4096))["clients"]
    assert {one["name"]: one["kernels"] for one in clients} == {"killed": 0, "other": 1}
