"""A stand-in for Katib, which cannot be installed here: its pod webhook and its collector.

`with_collector` changes a pod as the webhook of Katib 0.19 does for the collector StdOut.
Source: katib pkg/webhook/v1beta1/pod, cmd/metricscollector/v1beta1/file-metricscollector.
"""

from collections.abc import Mapping
from typing import Any

from kfext import names

FOLDER = "/var/log/katib"
FILE = f"{FOLDER}/metrics.log"
_VOLUME = "metrics-volume"
_COLLECTOR = f"""
import glob, os, time
while not os.path.exists({FILE!r}):
    time.sleep(0.1)
with open({FILE!r}) as file:
    while True:
        ended = glob.glob({FOLDER!r} + "/*.pid")  # read before the lines, so that no line is missed
        for line in file:
            stamp = time.strftime("I%m%d %H:%M:%S")
            print(f"{{stamp}}.000000      14 main.go:143] {{line}}", end="", flush=True)
        if ended:
            break
        time.sleep(0.1)
"""
"""A program that prints each line of the file with a klog header, until the training has ended."""


def with_collector(spec: Mapping[str, Any], *, container: str = "pytorch") -> dict[str, Any]:
    """Return a pod spec with a collector; the container prints into a file that both share."""
    mount = {"name": _VOLUME, "mountPath": FOLDER}
    changed = []
    for each in spec["containers"]:
        if each["name"] == container:
            words = [*each["command"], *each.get("args", ())]
            shell = words[:2] if words[0] in {"sh", "bash"} and words[1] == "-c" else ["sh", "-c"]
            words = words[2:] if shell == words[:2] else words
            line = " ".join([*words, f"1>{FILE} 2>&1 && echo completed > {FOLDER}/$$$$.pid"])
            mounts = [*each.get("volumeMounts", ()), mount]
            changed.append({**each, "command": shell, "args": [line], "volumeMounts": mounts})
        else:
            changed.append(each)
    (trainer,) = (each for each in spec["containers"] if each["name"] == container)
    collector = {
        "name": names.KATIB_COLLECTOR,
        "image": trainer["image"],  # Katib's image has the program in it
        "command": ["python3", "-u", "-c", _COLLECTOR],
        "imagePullPolicy": "IfNotPresent",
        "resources": {
            "requests": {"cpu": "50m", "memory": "10Mi", "ephemeral-storage": "500Mi"},
            "limits": {"cpu": "500m", "memory": "100Mi", "ephemeral-storage": "5Gi"},
        },
        "volumeMounts": [mount],
    }
    return {
        **spec,
        "containers": [*changed, collector],
        "volumes": [*spec.get("volumes", ()), {"name": _VOLUME, "emptyDir": {}}],
        "shareProcessNamespace": True,
    }
