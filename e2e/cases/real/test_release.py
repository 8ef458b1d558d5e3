"""A release is installed from its files, reached by an upgrade, and removed, as the pages say."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubeflow.training import KubeflowOrgV1PyTorchJob

from e2e import release
from e2e.harness.install import install_kfext, kubectl, uninstall_kfext, wait_installed
from e2e.harness.kube import Kube
from e2e.harness.manual import Shell, commands, left_behind
from e2e.harness.training import pods_of, pytorch_job, submit
from e2e.harness.versions import unpack_0_3
from e2e.harness.wait import until
from e2e.testbed.cluster import Testbed
from e2e.testbed.images.recipes import kfext_image
from e2e.testbed.realnodes import nodes, renew_images
from kfext import __version__, names

pytestmark = pytest.mark.long
_ENDLESS = 1_000_000
"""More steps than a job makes before a case deletes it."""
_CPU_FRACTION = 0.35
"""The fraction of a node's CPU for a pod: beside half of kfext two pods fit, and never three."""
_OVERLAY = "-k manifests/overlays/default"
_SECONDS = 180.0


@pytest.fixture(scope="module")
def files(bed: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The release files of HEAD; the nodes have the image of this tree."""
    folder = tmp_path_factory.mktemp("release") / release.DIST.name
    release.build(folder, version=__version__, image="kfext")
    renew_images(bed, [kfext_image(f"kfext:{__version__}")])
    yield folder
    install_kfext(bed)


@pytest.fixture
def shell(
    bed: Testbed, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shell]:
    """A shell with the manifests and the command of the release; kfext is not installed."""
    monkeypatch.delenv("PYTHONPATH", raising=False)  # the command runs the code of the wheel
    (packed,) = files.glob("*-manifests.tar.gz")
    subprocess.run(["tar", "--extract", f"--file={packed}", f"--directory={tmp_path}"], check=True)
    python = tmp_path / "environment" / "bin" / "python"
    release.uv("venv", str(tmp_path / "environment"))
    release.uv("pip", "install", f"--python={python}", *map(str, files.glob("*.whl")))
    uninstall_kfext(bed)
    source = tmp_path / packed.name.removesuffix("-manifests.tar.gz")
    yield Shell(bed, tmp_path / "shell", source=source, command=python)
    uninstall_kfext(bed)


def install(shell: Shell) -> None:
    """Install kfext as docs/install.md says."""
    apply, wait, *_ = commands("Install")
    shell.run(apply)
    shell.run(wait)


def remove(shell: Shell, installed: str = _OVERLAY) -> None:
    """Remove kfext as docs/remove.md says. `installed`: the option of what was applied."""
    for command in commands("Remove"):
        shell.run(command.replace(_OVERLAY, installed))


def uids(bed: Testbed, namespace: str, job: str) -> dict[str, str]:
    pods = pods_of(bed, namespace, job)
    return {name: pod["metadata"]["uid"] for name, pod in pods.items()}


def phase(bed: Testbed, namespace: str, job: str) -> str:
    """Return the phase of a job; empty before it has a TrainingPlan."""
    path = f"/apis/kfext.dev/v1alpha1/namespaces/{namespace}/trainingplans"
    plans = {plan["metadata"]["name"]: plan for plan in bed.api.get(path)["items"]}
    return str(plans.get(f"pytorchjob-{job}", {}).get("status", {}).get("phase", ""))


def wait_phase(bed: Testbed, namespace: str, job: str, wanted: str) -> None:
    until(
        lambda: phase(bed, namespace, job) == wanted,
        what=f"{job} is {wanted}",
        account=lambda: phase(bed, namespace, job),
        seconds=_SECONDS,
    )


def run_and_wait(bed: Testbed, namespace: str) -> dict[str, str]:
    """Start a job with two pods, and a job that must wait; return the uids of the first job."""
    submit(bed, _job(bed, "runs", workers=1), namespace)
    wait_running(bed, namespace, "runs", 2)
    submit(bed, _job(bed, "waits", workers=2), namespace)
    wait_phase(bed, namespace, "waits", "Queued")
    return uids(bed, namespace, "runs")


def _job(bed: Testbed, name: str, *, workers: int) -> KubeflowOrgV1PyTorchJob:
    cpu = f"{int(_CPU_FRACTION * nodes(bed)[0].millicores)}m"
    arguments = ("--model", "cnn", "--steps", str(_ENDLESS))
    return pytorch_job(name, workers=workers, cpu=cpu, arguments=arguments)


def wait_running(bed: Testbed, namespace: str, job: str, count: int) -> None:
    def phases() -> list[str]:
        return [pod["status"]["phase"] for pod in pods_of(bed, namespace, job).values()]

    until(
        lambda: phases() == ["Running"] * count,
        what=f"{job} runs",
        account=lambda: str(phases()),
        seconds=_SECONDS,
    )


def images(bed: Testbed) -> set[str]:
    """Return the images of the pods of kfext."""
    pods = bed.api.get(f"/api/v1/namespaces/{names.NAMESPACE}/pods")["items"]
    return {container["image"] for pod in pods for container in pod["spec"]["containers"]}


def test_a_release_is_installed_and_removed_as_the_pages_say(
    bed: Testbed, managed: str, shell: Shell
) -> None:
    install(shell)
    wait_installed(bed)
    assert images(bed) == {f"kfext:{__version__}"}
    assert __version__ in shell.run("kubectl kfext --version")
    ran = run_and_wait(bed, managed)

    remove(shell)

    assert left_behind(Kube(bed)) == []
    assert uids(bed, managed, "runs") == ran
    kubectl(bed, "delete", "pytorchjob", "runs", "-n", managed)
    wait_running(bed, managed, "waits", 3)


def test_jobs_continue_when_0_3_is_upgraded_with_install_yaml(
    bed: Testbed, managed: str, files: Path, shell: Shell, tmp_path: Path
) -> None:
    earlier = unpack_0_3(tmp_path)
    renew_images(bed, [kfext_image("kfext:0.3.0", source=earlier)])
    install(Shell(bed, tmp_path / "shell-of-0.3", source=earlier))
    wait_installed(bed)
    assert images(bed) == {"kfext:0.3.0"}
    ran = run_and_wait(bed, managed)

    shell.run(f"kubectl apply --server-side -f {files / 'install.yaml'}")
    until(lambda: images(bed) == {f"kfext:{__version__}"}, what="0.3 is gone", seconds=_SECONDS)
    wait_installed(bed)

    assert uids(bed, managed, "runs") == ran
    assert phase(bed, managed, "waits") == "Queued"
    kubectl(bed, "delete", "pytorchjob", "runs", "-n", managed)
    wait_running(bed, managed, "waits", 3)
    wait_phase(bed, managed, "waits", "Placed")
    remove(shell, f"-f {files / 'install.yaml'}")
    assert left_behind(Kube(bed)) == []
