"""The benchmark of GPU sharing runs on a lent machine, which has few packages and no network."""

import subprocess
import sys

ABSENT = ("aiohttp", "google.protobuf", "grpc", "kopf", "kubernetes", "msgspec", "yaml")


def test_it_needs_nothing_of_the_agent_that_talks_to_kubelet_or_the_api_server() -> None:
    hidden = f"import sys; sys.modules.update(dict.fromkeys({ABSENT!r}))"
    command = f"{hidden}; import e2e.bench.gpu_share.__main__"
    subprocess.run([sys.executable, "-c", command], check=True)
