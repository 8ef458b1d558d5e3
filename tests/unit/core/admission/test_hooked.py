"""How the Python of a container is made to load the hook."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from kfext.core.admission.hooked import hooked
from tests.unit.objects import Raw

PRIORITY = {"name": "KFEXT_GPU_PRIORITY", "value": "low"}
RECORDED = {"name": "KFEXT_PYTHONPATH", "value": "/kfext/recorded/pythonpath"}
MOUNT = {"name": "kfext-recorded", "mountPath": "/kfext/recorded"}
VOLUME = {"name": "kfext-recorded", "emptyDir": {"sizeLimit": "1Mi"}}
BEFORE, AFTER = {"name": "A", "value": "1"}, {"name": "B", "value": "$(PYTHONPATH)"}
FROM_MAP = {"name": "PYTHONPATH", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}


def path(value: str) -> Raw:
    return {"name": "PYTHONPATH", "value": value}


def container(**more: Any) -> Raw:
    return {"name": "main", "image": "trainer", **more}


def with_hook(spec: Raw) -> Raw:
    return dict(hooked(spec, 0, priority="low"))


LITERAL: dict[str, tuple[list[Raw], list[Raw]]] = {
    "a path": ([path("/app")], [path("/kfext/hook:/app"), PRIORITY]),
    "several paths": ([path("/a:/b")], [path("/kfext/hook:/a:/b"), PRIORITY]),
    "an empty one, which is not the working directory": (
        [path("")],
        [path("/kfext/hook"), PRIORITY],
    ),
    "between variables, one of which refers to it": (
        [BEFORE, path("$(A)"), AFTER],
        [BEFORE, path("/kfext/hook:$(A)"), AFTER, PRIORITY],
    ),
}


@pytest.mark.parametrize(("env", "want"), LITERAL.values(), ids=LITERAL)
def test_a_path_that_the_pod_states_stays_behind_ours(env: list[Raw], want: list[Raw]) -> None:
    assert with_hook({"containers": [container(env=env)]}) == {
        "containers": [container(env=want)],
    }


def test_the_last_of_several_counts_as_for_the_kubelet() -> None:
    (found,) = with_hook({"containers": [container(env=[path("/a"), path("/b")])]})["containers"]
    assert found["env"][-2:] == [path("/kfext/hook:/b"), PRIORITY]


@pytest.mark.parametrize("env", [None, [BEFORE], [FROM_MAP, AFTER]], ids=["no", "other", "its own"])
def test_a_shell_puts_the_hook_before_what_is_not_known_here_and_becomes_the_command(
    env: list[Raw] | None,
) -> None:
    stated = {"env": env} if env else {}
    given = container(command=["torchrun", "a b"], args=["$x"], **stated)
    spec = with_hook({"containers": [given]})
    (found,) = spec.pop("containers")
    assert spec == {}, "it has no init container"
    command = found.pop("command")
    del given["command"]
    assert found == {**given, "env": [*(env or []), PRIORITY]}
    assert command[:3] == ["/kfext/hook/busybox", "sh", "-c"]
    assert command[4:] == ["torchrun", "a b"]


PATHS = {"unset": ({}, "/kfext/hook"), "set": ({"PYTHONPATH": "/a:/b"}, "/kfext/hook:/a:/b")}


def test_a_command_without_a_folder_is_the_one_of_the_image(tmp_path: Path) -> None:
    own = tmp_path / "tool"
    own.write_text('#!/bin/sh\necho "own $1"\n')
    own.chmod(0o755)
    (found,) = with_hook({"containers": [container(command=["tool", "a b"])]})["containers"]
    # As a busybox takes its own programs before those of the PATH.
    script = f"tool() {{ echo taken; }}; {found['command'][3]}"
    command = ["/bin/sh", "-c", script.replace('exec "$0"', "tool"), *found["command"][4:]]
    environment = {"PATH": f"/nowhere:{tmp_path}"}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert said.stdout == "own a b\n"


@pytest.mark.parametrize(("environment", "want"), PATHS.values(), ids=PATHS)
def test_what_the_shell_becomes_has_the_path_and_its_arguments(
    environment: dict[str, str], want: str
) -> None:
    says = 'echo "$PYTHONPATH"; printf "%s\\n" "$@"'
    given = container(command=["/bin/sh", "-c", says, "sh", "a b"], args=["$c"])
    (found,) = with_hook({"containers": [given]})["containers"]
    command = ["/bin/sh", *found["command"][2:], *found["args"]]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == [want, "a b", "$c"]


UNKNOWN: dict[str, tuple[Any, list[Raw]]] = {
    "no variables": (None, [path("/kfext/hook")]),
    "other variables": ([BEFORE], [BEFORE, path("/kfext/hook")]),
    "its value is elsewhere": ([FROM_MAP, AFTER], [path("/kfext/hook"), AFTER]),
}


@pytest.mark.parametrize(("env", "want"), UNKNOWN.values(), ids=UNKNOWN)
def test_where_the_image_has_the_command_the_path_is_written_down_in_the_pod(
    env: Any, want: list[Raw]
) -> None:
    copied = {
        "imagePullPolicy": "Always",
        "envFrom": [{"configMapRef": {"name": "m"}}],
        "resources": {"limits": {"kfext.dev/gpu-0": "50"}},
        "securityContext": {"runAsUser": 7},
        **({"env": env} if env else {}),
    }
    given = {"containers": [container(args=["train.py"], ports=[], **copied), {"name": "side"}]}
    spec = with_hook(given)
    main, side = spec["containers"]
    assert main == {**given["containers"][0], "env": [*want, PRIORITY, RECORDED],
                    "volumeMounts": [MOUNT]}  # fmt: skip
    assert side == {"name": "side"}
    assert spec["volumes"] == [VOLUME]
    (init,) = spec["initContainers"]
    command = init.pop("command")
    assert init == {"name": "kfext-record", "image": "trainer", **copied, "volumeMounts": [MOUNT]}
    assert command[:3] == ["/kfext/hook/busybox", "sh", "-c"]
    assert command[3] == 'printf %s "$PYTHONPATH" > /kfext/recorded/pythonpath'


def test_what_is_there_already_stays_and_comes_first() -> None:
    mine, first = {"name": "data", "mountPath": "/data"}, {"name": "first"}
    spec = with_hook(
        {
            "containers": [container(volumeMounts=[mine])],
            "volumes": [{"name": "data"}],
            "initContainers": [first],
        }
    )
    assert spec["containers"][0]["volumeMounts"] == [mine, MOUNT]
    assert spec["volumes"] == [{"name": "data"}, VOLUME]
    assert [one["name"] for one in spec["initContainers"]] == ["first", "kfext-record"]
