import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from e2e.testbed import binaries
from e2e.testbed.preflight import Unavailable


class Machine:
    """The folders that are searched for a program; `put` writes a script that prints a version."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.assets, self.cache, self.path = folder / "assets", folder / "cache", folder / "path"
        for place in (self.assets, self.path):
            place.mkdir()
        monkeypatch.setenv("KUBEBUILDER_ASSETS", str(self.assets))
        monkeypatch.setenv("KFEXT_CACHE", str(self.cache))
        monkeypatch.setenv("PATH", str(self.path))

    def put(self, place: str, name: str, prints: str) -> Path:
        source = binaries.SOURCES[name]
        folder = {
            "assets": self.assets,
            "cache": self.cache / "bin" / f"{source.module}-{source.version}",
            "path": self.path,
        }[place]
        folder.mkdir(parents=True, exist_ok=True)
        program = folder / name
        program.write_text(f"#!/bin/sh\necho '{prints}'\n")
        program.chmod(0o755)
        return program


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("name", "prints", "accepted"),
    [
        ("kube-apiserver", "Kubernetes v1.32.0", True),
        ("kube-apiserver", "Kubernetes v1.31.9", False),
        ("kube-apiserver", "Kubernetes v2.0.0", True),
        ("kube-apiserver", "segmentation fault", False),
        ("kubectl", "Client Version: v1.30.1", True),
        ("kubectl", "Client Version: v1.29.14-gke.1", False),
        ("kubectl", "Client Version: v1.100.0", True),
        ("etcd", "etcd Version: 3.5.21", True),
        ("etcd", "etcd Version: 3.4.37", False),
        ("kwok", "kwok version v0.8.0", False),  # its stages come from the pinned module
    ],
)
def test_a_program_on_the_path_must_be_new_enough(
    machine: Machine, name: str, prints: str, accepted: bool
) -> None:
    program = machine.put("path", name, prints)
    assert binaries.find(name) == (program if accepted else None)


def test_a_failed_build_leaves_no_program_and_raises_its_reason(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = machine.path / "go"
    compiler.write_text(
        "#!/bin/sh\n"
        '[ "$1" = env ] && echo go1.26.0 && exit\n'
        'while [ "$1" != -o ]; do shift; done\n'
        'echo half > "$2"; echo "no space left on device" >&2; exit 1\n'
    )
    compiler.chmod(0o755)
    with pytest.raises(Unavailable, match="no space left on device"):
        binaries.resolve("etcd")
    assert binaries.find("etcd") is None
    files = [path.name for path in machine.cache.rglob("*") if path.is_file()]
    assert files == [".lock"]


def test_a_program_that_two_processes_need_at_once_is_built_once(machine: Machine) -> None:
    compiler, built = machine.path / "go", machine.path / "built"
    compiler.write_text(
        "#!/bin/sh\n"
        '[ "$1" = env ] && echo go1.26.0 && exit\n'
        'while [ "$1" != -o ]; do shift; done\n'
        f'echo "$3" >> {built}; /bin/sleep 0.2; echo whole > "$2"; /bin/chmod +x "$2"\n'
    )
    compiler.chmod(0o755)
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(binaries.resolve, ["etcd", "etcd"]))
    assert results[0] == results[1]
    assert len(built.read_text().splitlines()) == 1


def test_the_common_source_of_several_programs_has_one_version_and_is_compiled_once() -> None:
    excluded = {"etcd", "kubernetes"}  # they share little with other programs
    versions: dict[str, set[str]] = {}
    for source in {source for source in binaries.SOURCES.values() if source.module not in excluded}:
        pinned = (source.folder / "go.mod").read_text()
        for module, version in re.findall(r"^\t?(?:require )?(\S+) (v\S+)", pinned, re.MULTILINE):
            versions.setdefault(module, set()).add(version)
    assert {module: result for module, result in versions.items() if len(result) > 1} == {}
    assert len(versions) > 100
