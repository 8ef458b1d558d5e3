"""Whether a node takes pods, real or fake."""

from collections.abc import Mapping
from typing import Any


def is_ready(node: Mapping[str, Any]) -> bool:
    """Say whether a node (as the API shows it) is ready and takes pods."""
    conditions = node.get("status", {}).get("conditions", [])
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    taints = {taint["key"] for taint in node.get("spec", {}).get("taints", [])}
    return ready and "node.kubernetes.io/not-ready" not in taints
