"""Let the program of a job post its progress, as Hugging Face Transformers does by itself.

The training container gets what Kubeflow Trainer gives to its own: three variables, a token of the
pod, and the authority to trust (KEP-2779). The authority is an annotation of the pod, so kfext
writes no object into the namespace of a user.

The program waits for each post, up to 5 s if the network swallows it. Without a token it does not
post. So the token is at a link, which a probe makes once it has reached the endpoint from the pod.
"""

from collections.abc import Mapping
from typing import Any

from kfext import names
from kfext.core.admission.control_file import is_mounted
from kfext.core.patches.json_patch import Operation, pointer, write
from kfext.core.settings.table import settings_of_pod
from kfext.core.settings.values import PUSH
from kfext.model.kinds.job_kind import JobKind
from kfext.model.pod_bounds import pod_excess
from kfext.model.podspec import container_named, with_container
from kfext.model.tolerant import mapping, sequence, strings, text

HOST, PORT = f"{names.PROGRESS_SERVICE}.{names.NAMESPACE}.svc", 443
AUDIENCE = names.DOMAIN
"""Of the token: no other service accepts it."""
URL, CA_CERT, TOKEN = (f"KUBEFLOW_TRAINER_SERVER_{name}" for name in ("URL", "CA_CERT", "TOKEN"))
_TOKEN_SECONDS = 3600
_FOLDER, _LINKS = "/var/run/secrets/kfext", "/var/run/kfext"
_TOKEN_VOLUME, _LINK_VOLUME = "kfext-progress", "kfext-progress-link"
_AUTHORITY = {"fieldPath": f"metadata.annotations['{names.POST_AUTHORITY}']"}
_REACH = """
import os, socket, sys
link, token, host, port = sys.argv[1:]
if os.path.lexists(link):
    os.unlink(link)
try:
    socket.create_connection((host, int(port)), timeout=1).close()
except OSError:
    sys.exit(0)
os.symlink(token, link)
"""
"""The link is gone during the attempt: the attempt may be killed while it looks up the name."""
_PROBE = {
    # Isolated, so that the modules and the variables of the image play no part.
    "exec": {
        "command": [
            *("python3", "-I", "-c", _REACH, f"{_LINKS}/token", f"{_FOLDER}/token"),
            *(HOST, str(PORT)),
        ]
    },
    "periodSeconds": 60,
    "timeoutSeconds": 3,
    "failureThreshold": 2**31 - 1,
}
"""A liveness probe that never fails often enough to restart the container, even without Python."""

Raw = Mapping[str, Any]


def post_path(kind: JobKind, namespace: str, name: str) -> str:
    """Return the path of the endpoint for the posts of a job."""
    return f"/apis/{kind.api_version}/namespaces/{namespace}/{kind.plural}/{name}/status"


def posting(
    kind: JobKind, metadata: Raw, spec: Raw, *, namespace: str, authority: str
) -> tuple[Raw, list[Operation]]:
    """Return the pod spec that lets the program post, and the operations that make it.

    A pod stays as it is if its job did not ask or it cannot be rank 0, if it posts elsewhere, or if
    it has a liveness probe or uses kfext's folders or names of volumes. `authority`: in PEM.
    """
    found = container_named(spec, kind.container)
    labels = strings(metadata.get("labels"))
    ranked = labels.get(kind.type_label, "").lower() in map(str.lower, kind.rank_zero)
    asked = settings_of_pod(strings(metadata.get("annotations"))).metrics.source == PUSH
    if found is None or not (ranked and asked) or _is_taken(spec, found[1]):
        return spec, []
    index, container = found
    path = post_path(kind, namespace, labels.get(kind.job_label, ""))
    values = {
        URL: f"https://{HOST}:{PORT}{path}",
        CA_CERT: f"{_FOLDER}/ca.crt",
        TOKEN: f"{_LINKS}/token",
    }
    token = {"audience": AUDIENCE, "expirationSeconds": _TOKEN_SECONDS, "path": "token"}
    sources = [
        {"serviceAccountToken": token},
        {"downwardAPI": {"items": [{"path": "ca.crt", "fieldRef": _AUTHORITY}]}},
    ]
    changes: dict[str, list[Any]] = {
        "env": [{"name": name, "value": value} for name, value in values.items()],
        "volumeMounts": [
            {"name": _TOKEN_VOLUME, "mountPath": _FOLDER, "readOnly": True},
            {"name": _LINK_VOLUME, "mountPath": _LINKS},
        ],
    }
    volumes = [
        {"name": _TOKEN_VOLUME, "projected": {"sources": sources}},
        {"name": _LINK_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": "64Ki"}},
    ]
    of_container: dict[str, Any] = {
        key: [*sequence(container.get(key)), *new] for key, new in changes.items()
    }
    of_container["livenessProbe"] = _PROBE
    of_spec = {"volumes": [*sequence(spec.get("volumes")), *volumes]}
    changed = {**with_container(spec, index, **of_container), **of_spec}
    if pod_excess(changed):
        return spec, []
    at = pointer("spec", "containers", str(index))
    return changed, [
        {
            "op": "add",
            "path": pointer("metadata", "annotations", names.POST_AUTHORITY),
            "value": authority,
        },
        *(write(spec, key, f"/spec/{key}", value) for key, value in of_spec.items()),
        *(write(container, key, f"{at}/{key}", value) for key, value in of_container.items()),
    ]


def _is_taken(spec: Raw, container: Raw) -> bool:
    """Return whether something of the user's is in the place of what kfext would add."""
    lists = spec.get("volumes"), container.get("env"), container.get("volumeMounts")
    if container.get("livenessProbe") or not all(isinstance(x, list | None) for x in lists):
        return True
    volumes, env, mounts = (
        {text(mapping(item).get(key)) for item in sequence(items)}
        for items, key in zip(lists, ("name", "name", "mountPath"), strict=True)
    )
    names_taken = not volumes.isdisjoint({_TOKEN_VOLUME, _LINK_VOLUME})
    posts = not env.isdisjoint({URL, CA_CERT, TOKEN})
    return names_taken or posts or any(is_mounted(mounts, at) for at in (_FOLDER, _LINKS))
