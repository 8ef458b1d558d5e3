"""The program of a pipeline step: it creates or adopts a training job, and waits until it ends.

Kubeflow Pipelines copies the source of these functions into the step. So each function is complete:
it has its own imports, and refers only to `typing`, builtins and the other functions. They are for
Python 3.10 and later.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any


def pod_parts(task: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields of a pod spec and a container from the settings (TaskConfig) of a step."""
    spec = {"nodeSelector": task.node_selector, "tolerations": task.tolerations}
    spec |= {"affinity": task.affinity, "volumes": task.volumes}
    container = {"env": task.env, "resources": task.resources, "volumeMounts": task.volume_mounts}
    return (
        {key: value for key, value in spec.items() if value},
        {key: value for key, value in container.items() if value},
    )


def pytorchjob_of(
    container: dict[str, Any], *, replicas: int, processes: int, backoff_limit: int, task: Any
) -> dict[str, Any]:
    """Return a PyTorchJob without a name.

    `container`: its image and command. `processes`: how many in each pod; 0 means the default.
    """
    spec, parts = pod_parts(task)
    template = {"spec": {**spec, "containers": [{"name": "pytorch", **container, **parts}]}}
    replica = {"replicas": 1, "restartPolicy": "OnFailure", "template": template}
    workers = {"Worker": {**replica, "replicas": replicas - 1}} if replicas > 1 else {}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "spec": {
            **({"nprocPerNode": str(processes)} if processes else {}),
            "runPolicy": {"backoffLimit": backoff_limit},
            "pytorchReplicaSpecs": {"Master": replica, **workers},
        },
    }


def trainjob_of(
    container: dict[str, Any], *, replicas: int, processes: int, runtime: str, task: Any
) -> dict[str, Any]:
    """Return a TrainJob without a name; it trains in the replicated job `node` of its runtime."""
    spec, parts = pod_parts(task)
    trainer = {**container, "numNodes": replicas, "numProcPerNode": processes}
    trainer |= {"env": parts.get("env"), "resourcesPerNode": parts.get("resources")}
    if "volumeMounts" in parts:
        spec["containers"] = [{"name": "node", "volumeMounts": parts["volumeMounts"]}]
    node = {"name": "node", "template": {"spec": {"template": {"spec": spec}}}}
    runtime_spec = {"template": {"spec": {"replicatedJobs": [node]}}}
    patch = {"manager": "kfext.dev/pipelines", "trainingRuntimeSpec": runtime_spec}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "spec": {
            "runtimeRef": {"name": runtime},
            "trainer": {key: value for key, value in trainer.items() if value},
            **({"runtimePatches": [patch]} if spec else {}),
        },
    }


def patch_launcher(job: dict[str, Any], runtime: dict[str, Any]) -> None:
    """Patch the launcher of a TrainJob like its nodes, if its runtime has a launcher (MPI)."""
    patch = job["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]
    for replicated in runtime["spec"]["template"]["spec"]["replicatedJobs"] if runtime else ():
        if replicated["name"] == "launcher":
            patch["replicatedJobs"].append({**patch["replicatedJobs"][0], "name": "launcher"})


def with_name(
    job: dict[str, Any], settings: dict[str, Any], *, run: str, task: str
) -> dict[str, Any]:
    """Return a job with its name and kfext's settings.

    The name follows from the run, the task, the job and the settings. So a retry of a step uses the
    same name, and an iteration of a loop with different arguments uses a different name.
    """
    import hashlib
    import json
    import re

    text = json.dumps([run, task, job, settings], sort_keys=True)
    stem = re.sub(r"[^a-z0-9]+", "-", task.lower())[:40].strip("-")
    stem = stem if stem[:1].isalpha() else f"job-{stem}".strip("-")
    metadata = {
        "name": f"{stem}-{hashlib.sha256(text.encode()).hexdigest()[:10]}",
        "annotations": {f"kfext.dev/{key}": str(value) for key, value in settings.items()},
        "labels": {"pipeline/runid": run},  # as the pods of the run have
    }
    return {**job, "metadata": metadata}


def condition_of(job: dict[str, Any], *types: str) -> dict[str, Any]:
    """Return the first condition of these types that is true; empty without such a condition."""
    conditions = (job.get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c["type"] in types and c["status"] == "True"), {})


def line_of(job: dict[str, Any], plan: dict[str, Any]) -> str:
    """Return a status line about a job from its TrainingPlan: reason and position, or progress."""
    status = plan.get("status") or {}
    conditions = (job.get("status") or {}).get("conditions") or []
    true = [condition["type"] for condition in conditions if condition["status"] == "True"]
    phase = status.get("phase") or (true or ["Created"])[-1]
    parts = [phase + (f" on {status['nodeSummary']}" if status.get("nodeSummary") else "")]
    if phase not in {"Placed", "Finished"} and status.get("message"):
        parts = [f"{parts[0]}: {status.get('reason')}: {status['message']}"]
    if status.get("ahead") is not None:
        parts.append(f"jobs ahead: {status['ahead']}")
    if status.get("expectedStart"):
        parts.append(f"starts: {status['expectedStart']['summary']}")
    progress = status.get("progress") or {}
    if progress.get("step") is not None:
        total = f"/{progress['totalSteps']}" if progress.get("totalSteps") else ""
        parts.append(f"step {progress['step']}{total}")
    if progress.get("value") is not None:
        parts.append(f"{progress.get('metric')} {progress['value']:.6g}")
    if progress.get("secondsLeft") is not None:
        parts.append(f"{progress['secondsLeft']:.0f} s left")
    return ", ".join(parts)


def lines_of(observations: Iterable[tuple[float, dict[str, Any], dict[str, Any]]]) -> Iterator[str]:
    """Yield the status line of a job at each change, and every minute, until the job succeeded.

    `observations`: tuples of the time in seconds, the job, which is empty after its deletion, and
    its TrainingPlan. Raises RuntimeError if the job failed or was deleted.
    """
    line, last = "", 0.0
    shown: tuple[Any, ...] = ()
    for now, job, plan in observations:
        if not job:
            raise RuntimeError(f"the job was deleted; it was last {line or 'created'}")
        status = plan.get("status") or {}
        line, key = line_of(job, plan), (status.get("phase"), status.get("reason"))
        failed = condition_of(job, "Failed")
        ended = failed or condition_of(job, "Succeeded", "Complete")
        if ended or not shown or key != shown or now - last >= 60.0:
            yield line
            shown, last = key, now
        if failed:
            words = [failed.get("reason"), failed.get("message")]
            if status.get("phase") != "Finished":
                words += [status.get("reason"), status.get("message")]
            raise RuntimeError(f"the job failed: {': '.join(word for word in words if word)}")
        if ended:
            return


def results_of(job: dict[str, Any], plan: dict[str, Any]) -> dict[str, float]:
    """Return the results of a job that has ended, by name.

    The job waited from its creation to its last start, and ran from that start to its end.
    """
    import datetime

    def seconds(time: str) -> float:
        return datetime.datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()

    status, shown = job.get("status") or {}, plan.get("status") or {}
    progress = shown.get("progress") or {}
    conditions = status.get("conditions") or []
    resumed = [c for c in conditions if c["type"] == "Suspended" and c["status"] == "False"]
    created = job["metadata"]["creationTimestamp"]
    begun = resumed[0]["lastTransitionTime"] if resumed else status.get("startTime") or created
    ended = condition_of(job, "Succeeded", "Complete", "Failed").get("lastTransitionTime", begun)
    results = {
        progress.get("metric") or "metric": progress.get("value"),
        "step": progress.get("step"),
        "steps_per_second": progress.get("stepsPerSecond"),
        "nodes": len(shown["nodes"]) if shown.get("nodes") else None,
        "waited_seconds": seconds(begun) - seconds(created),
        "ran_seconds": seconds(ended) - seconds(begun),
    }
    return {name: float(value) for name, value in results.items() if value is not None}


def owners_of(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the owners of a step's job: the pod and, for a step with a retry, the Workflow."""
    metadata, keys = pod["metadata"], ("apiVersion", "kind", "name", "uid")
    # Argo numbers the attempts of a step that has a retry: "train.executor(0)".
    node = (metadata.get("annotations") or {}).get("workflows.argoproj.io/node-name", "")
    workflows = metadata.get("ownerReferences") or [] if node.endswith(")") else []
    this_pod = {"apiVersion": "v1", "kind": "Pod", **metadata}
    return [{key: owner[key] for key in keys} for owner in (*workflows, this_pod)]


def create_or_adopt(
    send: Callable[..., dict[str, Any]], job: dict[str, Any], owners: list[dict[str, Any]]
) -> dict[str, Any]:
    """Create a job, or adopt the job of this name, which an earlier attempt of the step created.

    A job that failed is replaced. `send` creates, gets, patches or deletes the job. It returns an
    empty object if the job is absent or was replaced, and on `create` if it exists already.
    """
    import time

    while True:
        created = send(
            "create", {**job, "metadata": {**job["metadata"], "ownerReferences": owners}}
        )
        if created:
            return created
        existing = send("get")
        metadata = existing.get("metadata") or {}
        deleting = "deletionTimestamp" in metadata
        if existing and not deleting and not condition_of(existing, "Failed"):
            present = metadata.get("ownerReferences") or []
            added = [owner for owner in owners if owner not in present]
            print(f"adopting {metadata['name']}, which an earlier attempt created", flush=True)
            version = {"resourceVersion": metadata["resourceVersion"]}
            owned = {"metadata": {**version, "ownerReferences": [*present, *added]}}
            if not added or send("patch", owned):
                return existing
        elif existing and not deleting:
            send("delete", body={"preconditions": {"uid": metadata["uid"]}})
        time.sleep(2.0)


def clean_up(
    send: Callable[..., dict[str, Any]], title: str, owners: list[dict[str, Any]], *, silent: bool
) -> None:
    """Delete the job of a step that ends early, or leave the job to a retry of the step.

    `silent`: whether the step ends because the API server does not answer.
    """
    try:
        # A drained or preempted pod has this condition; the pod of a terminated run does not.
        retried = len(owners) > 1
        if retried and (silent or condition_of(send("get", kind="pod"), "DisruptionTarget")):
            print(f"{title} is left to the retry of the step", flush=True)
            return
        metadata = send("get").get("metadata") or {}
        pods = [owner for owner in metadata.get("ownerReferences") or [] if owner["kind"] == "Pod"]
        if metadata and all(pod in owners for pod in pods[-1:]):  # else a retry has adopted it
            print(f"the step ends, so {title} is deleted", flush=True)
            send("delete", body={"preconditions": {"uid": metadata["uid"]}})
    except Exception as error:
        print(f"{title} was not deleted, and stays: {error}", flush=True)


def connect(job: dict[str, Any]) -> tuple[str, Callable[..., dict[str, Any]]]:
    """Return the namespace of this step, and a function that sends requests about its job.

    The function also reads the job's plan or runtime, or the step's pod. It retries for ten minutes
    without a response; a refusal raises RuntimeError. Outside a cluster it uses the kubeconfig.
    """
    import json
    import os
    import time

    from kubernetes import client, config

    if "KUBERNETES_SERVICE_HOST" in os.environ:
        config.load_incluster_config()
        with open("/var/run/secrets/kubernetes.io/serviceaccount/namespace") as file:
            namespace = file.read().strip()
    else:
        config.load_kube_config()
        namespace = config.list_kube_config_contexts()[1]["context"].get("namespace", "default")
    api, title, name = client.CustomObjectsApi(), job["kind"].lower(), job["metadata"]["name"]
    group, pod = job["apiVersion"].split("/"), (os.environ.get("KFP_POD_NAME"), namespace)
    path = (*group, namespace, f"{title}s", name)
    plan = ("kfext.dev", "v1alpha1", namespace, "trainingplans", f"{title}-{name}")
    runtime = (*group, "clustertrainingruntimes", job["spec"].get("runtimeRef", {}).get("name"))
    reads = {
        "plan": (api.get_namespaced_custom_object, plan),
        "runtime": (api.get_cluster_custom_object, runtime),
        "pod": (client.CoreV1Api().read_namespaced_pod, pod),
    }
    # Versions of the client differ in the media type of a patch.
    merge = client.ApiClient(None, "Content-Type", "application/merge-patch+json")
    absent = {"create": {409}, "get": {404}, "patch": {404, 409}, "delete": {404, 409}}

    def send(verb: str, *body: Any, kind: str = "", **options: Any) -> dict[str, Any]:
        custom = client.CustomObjectsApi(merge) if verb == "patch" else api
        call = getattr(custom, f"{verb}_namespaced_custom_object")
        call, where = reads.get(kind, (call, path[:-1] if verb == "create" else path))
        pauses = iter((2.0, 4.0, 8.0, *[10.0] * 57))  # a step that is told to end has 30 s
        while True:
            try:
                answer = call(*where, *body, _request_timeout=30, **options)
                return dict(api.api_client.sanitize_for_serialization(answer))
            except Exception as error:
                status, text = getattr(error, "status", None) or 0, str(getattr(error, "body", ""))
                # A client that is older than the cluster may reject a valid object.
                unreadable = kind and (status == 403 or isinstance(error, ValueError))
                if unreadable or status in absent[verb]:
                    return {}
                text = json.loads(text).get("message") if text.startswith("{") else str(error)
                if verb != "get" and 400 <= status < 500 and status not in {401, 429}:
                    raise RuntimeError(f"{verb} of {title} {name} was refused: {text}") from error
                pause = next(pauses, 0.0)
                if not pause:
                    raise TimeoutError(f"{verb} of {title} {name} failed: {text}") from error
                print(f"the API server did not answer: {text}", flush=True)
            time.sleep(pause)

    return namespace, send


def observe(
    send: Callable[..., dict[str, Any]], uid: str
) -> Iterator[tuple[float, dict[str, Any], dict[str, Any]]]:
    """Yield the time in seconds, a job (empty once deleted) and its TrainingPlan every 10 s."""
    import time

    while True:
        job, plan = send("get"), send("get", kind="plan")
        # An earlier or later job of the same name has another uid.
        job = job if job and job["metadata"]["uid"] == uid else {}
        yield time.monotonic(), job, plan if plan and plan["spec"]["job"]["uid"] == uid else {}
        time.sleep(10.0)


def as_written(command: list[str]) -> list[str]:
    """Return a command as its author wrote it.

    kfp.local replaces each `python3` by the path of the Python in its virtual environment.
    """
    import sys

    if sys.prefix == sys.base_prefix:
        return command
    return [word.replace(sys.executable, "python3") for word in command]


def run_job(
    job: dict[str, Any], settings: dict[str, Any], *, run: str, task: str, owned: bool, metrics: Any
) -> None:
    """Create or adopt a job, print its status until it has ended, and record its results.

    An owned job is deleted when the step ends before it, unless a retry of the step may adopt it.
    Raises RuntimeError if the job is refused, fails or is deleted.
    """
    import os
    import signal
    import sys

    job = with_name(job, settings, run=run, task=task)
    namespace, send = connect(job)
    title = f"{job['kind']} {namespace}/{job['metadata']['name']}"
    pod = {"name": os.environ.get("KFP_POD_NAME"), "uid": os.environ.get("KFP_POD_UID")}
    owners = owners_of(send("get", kind="pod") or {"metadata": pod}) if owned and pod["uid"] else []
    if "runtimePatches" in job["spec"]:
        patch_launcher(job, send("get", kind="runtime"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        present = create_or_adopt(send, job, owners)
        print(title, flush=True)
        observations = observe(send, present["metadata"]["uid"])
        for line in lines_of(observations):
            print(line, flush=True)
        _, ended, plan = next(observations)  # kfext reads the last lines of the log after the end
    except BaseException as error:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if owned and not isinstance(error, RuntimeError):  # else the job was refused or has ended
            clean_up(send, title, owners, silent=isinstance(error, Exception))
        raise
    for result, value in results_of(ended, plan).items() if ended else ():
        metrics.log_metric(result, value)
    metrics.metadata["job"] = title


FUNCTIONS = (
    *(as_written, pod_parts, pytorchjob_of, trainjob_of, with_name, condition_of, line_of),
    *(patch_launcher, lines_of, results_of, owners_of, create_or_adopt, clean_up),
    *(connect, observe, run_job),
)
"""The functions that are copied into a step."""
