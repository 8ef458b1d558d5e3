"""A pipeline with all arguments of the components, and how its golden file is written.

`python -m tests.adapters.pipelines.golden FILE`, where kfp is installed.
"""

import sys

from kfp import compiler, dsl, kubernetes

from kfext.pipelines.components import command_of, pytorchjob, trainjob


def train(rate: float, name: str) -> None:
    """Stand in for a training function."""
    print(f"{name} trains with {rate}")  # noqa: T201


@dsl.pipeline(name="golden")  # type: ignore[untyped-decorator]
def golden(steps: int = 40, colocation: str = "required") -> None:
    """Train twice."""
    first = pytorchjob(
        "registry/train:1",
        ["torchrun", "train.py", f"--steps={steps}"],
        replicas=3,
        processes=2,
        settings={"colocation": f"{colocation}", "elastic": "1-4"},
    )
    first.set_cpu_limit("1").set_memory_limit("1Gi").set_env_variable("A", "b")
    kubernetes.add_node_selector(first, "disk", "ssd")
    kubernetes.add_toleration(first, key="gpu", operator="Exists")
    kubernetes.mount_pvc(first, "data", mount_path="/data")
    trainjob(
        "registry/train:1",
        command_of(train, rate=0.1, name="second"),
        settings={"network": "host"},
        owned=False,
    ).after(first)


if __name__ == "__main__":
    compiler.Compiler().compile(golden, sys.argv[1])
