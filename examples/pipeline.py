"""A pipeline with two steps that train (docs/pipelines.md). Run it with a kubeconfig, beside kfp."""

from kfp import dsl, local

from kfext.pipelines.components import command_of, pytorchjob

IMAGE = "kfext-testbed/training:dev"


def evaluate(seed):
    import time

    for step in range(1, 11):
        print(f"step {step}/10 loss={1 / (seed + step):.4f}", flush=True)
        time.sleep(1)


@dsl.pipeline(name="train")
def pipeline(steps: str = "60"):
    train = pytorchjob(
        IMAGE,
        ["python3", "/jobs/train_ddp.py", "--model", "resnet", "--steps", f"{steps}"],
        replicas=2,
        settings={"colocation": "required"},
    )
    train.set_cpu_limit("200m").set_memory_limit("700Mi").set_display_name("train")
    check = pytorchjob(IMAGE, command_of(evaluate, seed=1)).after(train)
    check.set_cpu_limit("100m").set_memory_limit("300Mi").set_display_name("evaluate")


if __name__ == "__main__":
    local.init(local.SubprocessRunner())
    pipeline()
