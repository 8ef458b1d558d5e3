"""Steps of a pipeline that train: `pytorchjob` and `trainjob`. They need kfp.

A step installs the Kubernetes client, and nothing of kfext. It waits until its job has ended.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kfp import dsl

from kfext.core.settings.table import TABLE, parse_setting
from kfext.names import DOMAIN
from kfext.pipelines.launcher import FUNCTIONS, as_written, pytorchjob_of, run_job, trainjob_of

if not hasattr(dsl, "TaskConfigField"):
    raise ImportError("kfext.pipelines needs a newer kfp: pip install 'kfp[kubernetes]>=2.15'")


@dsl.component(  # type: ignore[untyped-decorator]
    base_image="python:3.11-slim",
    packages_to_install=["kubernetes>=28,<38"],
    additional_funcs=list(FUNCTIONS),
    task_config_passthroughs=list(dsl.TaskConfigField),
)
def train(  # noqa: PLR0917
    metrics: dsl.Output[dsl.Metrics],
    kind: str,
    image: str,
    command: list,  # type: ignore[type-arg]  # kfp 2 knows no parameters of list and dict
    replicas: int,
    processes: int,
    backoff_limit: int,
    runtime: str,
    settings: dict,  # type: ignore[type-arg]
    owned: bool,
    run: str,
    task: str,
    task_config: dsl.TaskConfig,
) -> None:
    container = {"image": image, "command": as_written(command)}
    common = {"replicas": int(replicas), "processes": int(processes), "task": task_config}
    if kind == "TrainJob":
        job = trainjob_of(container, runtime=runtime, **common)
    else:
        job = pytorchjob_of(container, backoff_limit=int(backoff_limit), **common)
    run_job(job, settings, run=run, task=task, owned=owned, metrics=metrics)


def pytorchjob(
    image: str,
    command: Sequence[str],
    *,
    replicas: int = 1,
    processes: int = 0,
    backoff_limit: int = 3,
    settings: Mapping[str, str] | None = None,
    owned: bool = True,
) -> Any:
    """Return the task of a pipeline that trains in a PyTorchJob.

    `command`: the command of the training container; `command_of` makes it from a function.
    `replicas`: the number of training pods, each with the resources, variables, volumes, node
        selector, tolerations and affinity that are set on the task.
    `processes`: the number of processes that torchrun starts in each pod. With 0 it starts a
        process for each GPU of the pod or, without GPUs, for each CPU of the node.
    `backoff_limit`: the number of restarts of containers after which the job fails.
    `settings`: kfext's settings, such as {"colocation": "required"}. Raises ValueError for an
        unknown setting, UserError for a malformed value.
    `owned`: whether the job ends with the step, even if the run is terminated.
    """
    common = {"image": image, "replicas": replicas, "processes": processes, "owned": owned}
    return _task("PyTorchJob", command, settings, backoff_limit=backoff_limit, runtime="", **common)


def trainjob(
    image: str,
    command: Sequence[str],
    *,
    replicas: int = 1,
    processes: int = 0,
    runtime: str = "torch-distributed",
    settings: Mapping[str, str] | None = None,
    owned: bool = True,
) -> Any:
    """Return the task of a pipeline that trains in a TrainJob of a ClusterTrainingRuntime.

    `runtime`: the name of the runtime. The other arguments: see `pytorchjob`.
    """
    common = {"image": image, "replicas": replicas, "processes": processes, "owned": owned}
    return _task("TrainJob", command, settings, backoff_limit=0, runtime=runtime, **common)


def _task(
    kind: str, command: Sequence[str], settings: Mapping[str, str] | None, **arguments: Any
) -> Any:
    # An f-string turns a value that is known only when the pipeline runs into a placeholder.
    prefix = f"{DOMAIN}/"
    texts = {name.removeprefix(prefix): f"{value}" for name, value in (settings or {}).items()}
    for name, value in texts.items():
        key = prefix + name
        if key not in TABLE:
            known = ", ".join(sorted(row.removeprefix(prefix) for row in TABLE))
            raise ValueError(f"{name} is not a setting of kfext; the settings are {known}")
        if "{{" not in value:
            parse_setting(key, value, place=name)
    arguments |= {"kind": kind, "command": [f"{word}" for word in command], "settings": texts}
    run = {"run": dsl.PIPELINE_JOB_ID_PLACEHOLDER, "task": dsl.PIPELINE_TASK_NAME_PLACEHOLDER}
    return train(**arguments, **run).set_caching_options(enable_caching=False)


def command_of(function: Callable[..., object], **arguments: object) -> list[str]:
    """Return the command that calls a function, which must contain its own imports and helpers.

    `arguments`: literals: texts, numbers, lists and dicts of them. Pass a value of the pipeline as
    text: rate=f"{rate}". Raises ValueError for anything else. For torchrun, put
    ["torchrun", "--no-python"] before the command.
    """
    for name, value in arguments.items():
        try:
            ast.literal_eval(repr(value))
        except (ValueError, SyntaxError):
            raise ValueError(
                f"{name} is {value!r}, not a literal; pass a value of the pipeline as text: "
                f'{name}=f"{{value}}"'
            ) from None
    source = textwrap.dedent(inspect.getsource(function))
    return ["python3", "-u", "-c", f"{source}\n\n{function.__name__}(**{arguments!r})\n"]
