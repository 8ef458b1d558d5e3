"""Allow the program of a job to post its progress, as Hugging Face Transformers does by itself.

As in Kubeflow Trainer, the training container has three variables, a token of the pod, and a CA
certificate (KEP-2779). The certificate is an annotation of the pod, so kfext writes no object into
the namespace of a user.

The program waits for each post, up to 5 s if the network drops it. Without a token it does not
post. So the path of the token is a link, which a probe creates once it has reached the endpoint
from the pod.
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
"""The audience of the token, which no other service accepts."""
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
"""The probe's script. It deletes the link first: it may be killed while it resolves the name."""
_PROBE = {
    # Isolated (-I), so that the modules and the variables of the image have no effect.
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
    """Return the pod spec for a program that posts, and the operations that change it.

    A pod does not change if its job did not opt in, if it cannot be rank 0, if it posts elsewhere,
    or if it has a liveness probe or uses kfext's folders or volume names. `authority`: a CA in PEM.
    """
    trainer = container_named(spec, kind.container)
    labels = strings(metadata.get("labels"))
    ranked = labels.get(kind.type_label, "").lower() in map(str.lower, kind.rank_zero)
    opted_in = settings_of_pod(strings(metadata.get("annotations"))).metrics.source == PUSH
    if trainer is None or not (ranked and opted_in) or _conflicts(spec, trainer[1]):
        return spec, []
    index, container = trainer
    endpoint = post_path(kind, namespace, labels.get(kind.job_label, ""))
    values = {
        URL: f"https://{HOST}:{PORT}{endpoint}",
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
    container_fields: dict[str, Any] = {
        key: [*sequence(container.get(key)), *new] for key, new in changes.items()
    }
    container_fields["livenessProbe"] = _PROBE
    spec_fields = {"volumes": [*sequence(spec.get("volumes")), *volumes]}
    changed = {**with_container(spec, index, **container_fields), **spec_fields}
    if pod_excess(changed):
        return spec, []
    path = pointer("spec", "containers", str(index))
    return changed, [
        {
            "op": "add",
            "path": pointer("metadata", "annotations", names.POST_AUTHORITY),
            "value": authority,
        },
        *(write(spec, key, f"/spec/{key}", value) for key, value in spec_fields.items()),
        *(write(container, key, f"{path}/{key}", value) for key, value in container_fields.items()),
    ]


def _conflicts(spec: Raw, container: Raw) -> bool:
    """Return whether the user's spec conflicts with the fields that kfext would add."""
    lists = spec.get("volumes"), container.get("env"), container.get("volumeMounts")
    if container.get("livenessProbe") or not all(isinstance(x, list | None) for x in lists):
        return True
    volumes, env, mounts = (
        {text(mapping(item).get(key)) for item in sequence(items)}
        for items, key in zip(lists, ("name", "name", "mountPath"), strict=True)
    )
    names_taken = not volumes.isdisjoint({_TOKEN_VOLUME, _LINK_VOLUME})
    posts = not env.isdisjoint({URL, CA_CERT, TOKEN})
    return names_taken or posts or any(is_mounted(mounts, path) for path in (_FOLDER, _LINKS))
