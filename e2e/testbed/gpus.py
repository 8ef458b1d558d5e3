"""Real nodes with the GPUs of this machine.

With KFEXT_TESTBED_GPUS a node's containerd runs containers with a stand-in for NVIDIA's runtime.
PyTorch jobs use this machine's PyTorch for CUDA, so their image has no PyTorch; there is no image
with TensorFlow.
"""

import os
import shlex
import sys
from pathlib import Path

from e2e.testbed.paths import REPOSITORY

VARIABLE = "KFEXT_TESTBED_GPUS"
_RUNTIME = REPOSITORY / "e2e/gpu/nvidia_runtime.py"
_CONFIG = """
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
    BinaryName = "{command}"
"""


def used() -> bool:
    """Return whether real nodes have the GPUs of this machine."""
    return bool(os.environ.get(VARIABLE))


def containerd_config(folder: Path) -> str:
    """Return an addition to containerd's configuration. `folder`: the node's folder."""
    if not used():
        return ""
    command = folder / "runc-with-gpus"
    command.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, str(_RUNTIME)])} "$@"\n')
    command.chmod(0o755)
    return _CONFIG.format(command=command)
