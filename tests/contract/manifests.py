"""The committed YAML, as kubectl renders it."""

import functools
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

from e2e.testbed import binaries

REPOSITORY = Path(__file__).resolve().parents[2]
MANIFESTS = REPOSITORY / "manifests"
CRDS = REPOSITORY / "crds"
BASE = MANIFESTS / "base"
DEFAULT = MANIFESTS / "overlays" / "default"

Object = dict[str, Any]


@functools.cache
def render(folder: Path) -> tuple[Object, ...]:
    """Return the objects of a kustomization. Skips the test if there is no kubectl."""
    kubectl = shutil.which("kubectl") or binaries.find("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl on PATH or in the cache of the testbed")
    done = subprocess.run(
        [str(kubectl), "kustomize", str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return tuple(yaml.load_all(done.stdout, Loader=yaml.CSafeLoader))


def with_components(root: Path, *folders: Path, base: Path = BASE) -> tuple[Object, ...]:
    """Return the objects of a user's overlay at `root`: of a base and some components."""
    (root / "kustomization.yaml").write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kustomize.config.k8s.io/v1beta1",
                "kind": "Kustomization",
                "resources": [os.path.relpath(base, root)],
                "components": [os.path.relpath(folder, root) for folder in folders],
                "images": [{"name": "kfext", "newName": "registry.example/kfext", "newTag": "1"}],
            }
        )
    )
    return render(root)


@functools.cache
def added(component: str) -> tuple[Object, ...]:
    """Return the objects that a component adds to a user's overlay."""
    with TemporaryDirectory() as folder:
        overlay = with_components(Path(folder).resolve(), MANIFESTS / "components" / component)
    in_base = {_identity(thing) for thing in render(BASE)}
    return tuple(thing for thing in overlay if _identity(thing) not in in_base)


def _identity(thing: Object) -> tuple[str, str, str]:
    metadata = thing["metadata"]
    return thing["kind"], metadata.get("namespace", ""), metadata["name"]


def read(path: Path) -> Object:
    """Return the only object of a file."""
    loaded: Object = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    return loaded


def crd(plural: str) -> Object:
    """Return a CRD of kfext as it is committed."""
    return read(CRDS / f"kfext.dev_{plural}.yaml")


def schema(plural: str) -> Object:
    """Return the schema of the only version of a CRD."""
    (version,) = crd(plural)["spec"]["versions"]
    result: Object = version["schema"]["openAPIV3Schema"]
    return result


def of_kind(kind: str, folder: Path = DEFAULT) -> list[Object]:
    """Return the rendered objects of a kind."""
    return [thing for thing in render(folder) if thing["kind"] == kind]


def named(kind: str, name: str, folder: Path = DEFAULT) -> Object:
    """Return one rendered object."""
    (result,) = (thing for thing in of_kind(kind, folder) if thing["metadata"]["name"] == name)
    return result


def pods(folder: Path = DEFAULT) -> Iterator[tuple[str, Object]]:
    """Yield the name and the pod template of each Deployment."""
    for deployment in of_kind("Deployment", folder):
        yield deployment["metadata"]["name"], deployment["spec"]["template"]
