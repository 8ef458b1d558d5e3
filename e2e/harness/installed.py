"""What is installed before the processes start: the project's own manifests, and a kubeconfig."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from e2e.testbed.paths import REPOSITORY


def manifests() -> Iterator[dict[str, Any]]:
    """Yield what `kubectl apply -k` applies, without the Deployments and the webhooks."""
    yield from read("base/namespace.yaml")
    yield from crds(REPOSITORY)
    yield from roles(REPOSITORY)
    yield from protection()


def crds(version: Path) -> Iterator[dict[str, Any]]:
    """Yield the kinds of the version whose code is in a folder."""
    for path in sorted((version / "crds").glob("kfext.dev_*.yaml")):
        yield from read(f"../crds/{path.name}", version)


def roles(version: Path) -> Iterator[dict[str, Any]]:
    """Yield the accounts and rights of the version whose code is in a folder."""
    for part in ("controller/rbac", "webhook/rbac", "users/roles"):
        yield from read(f"base/{part}.yaml", version)
    (overlay,) = read("overlays/default/kustomization.yaml", version)
    for path in overlay.get("components", ()):
        yield from component(Path(path).name, version)


def component(name: str, version: Path = REPOSITORY) -> Iterator[dict[str, Any]]:
    """Yield the objects of a component, as its files have them."""
    (content,) = read(f"components/{name}/kustomization.yaml", version)
    for file in content["resources"]:
        yield from read(f"components/{name}/{file}", version)


def protection() -> Iterator[dict[str, Any]]:
    """Yield the policy that protects kfext's marks, and its binding."""
    for part in ("policy", "binding"):
        yield from read(f"base/marks/{part}.yaml")


def read(path: str, version: Path = REPOSITORY) -> list[dict[str, Any]]:
    """Return the objects of a file in manifests/."""
    text = (version / "manifests" / path).read_text()
    return [manifest for manifest in yaml.safe_load_all(text) if manifest]


def plain_kubeconfig(path: Path, server: str) -> Path:
    """Write a kubeconfig without credentials: the proxy has them."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "proxy", "cluster": {"server": server}}],
        "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "nobody"}}],
        "current-context": "proxy",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    os.chmod(path, 0o600)
    return path
