"""The references of CRDs, commands, metrics and figures, each from the code that it describes."""

import importlib
from collections.abc import Iterable, Iterator
from typing import Any

import click
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from kfext.cli.main import cli
from kfext.controller.metrics import Metrics as ControllerMetrics
from kfext.controller.metrics import job_series
from kfext.gpu.agent.metrics import registry as agent_registry
from kfext.runtime import Scraped
from kfext.state.planner.planner import Planner
from kfext.webhook import app as webhook
from tests.contract.manifests import CRDS, read

FIGURES = {
    "kfext.state.mirror.pod_backlog.MAX_OUTSTANDING": (
        "pods that the operator still has to create for started jobs; with so many or more, no "
        "further job starts"
    ),
    "kfext.model.bounds.MAX_PODS": "pods of the largest job that kfext places together",
    "kfext.model.bounds.MAX_ANNOTATIONS": "annotations of kfext on a job, template or namespace",
    "kfext.model.bounds.MAX_REPLICA_TYPES": "replica types of a job",
    "kfext.model.bounds.MAX_VALUES": (
        "values in all fields of a pod that placement depends on; each 64 characters of text count "
        "as one more"
    ),
    "kfext.model.bounds.MAX_RESOURCES": "resource names in the requests and limits of a pod",
    "kfext.model.bounds.MAX_PORTS": "declared ports of a pod",
    "kfext.model.bounds.MAX_TOLERATIONS": "tolerations of a pod",
    "kfext.model.bounds.MAX_TERMS": (
        "terms and requirements in the required node affinity of a pod, and topology spread "
        "constraints"
    ),
    "kfext.webhook.review.MAX_VALUES": "values in an object that the webhook decodes",
    "kfext.model.bounds.MAX_RENDERED": "values in the JobSet of a TrainJob",
    "kfext.state.running.size.guard.MAX_DONORS": "donors for a waiting job",
    "kfext.state.running.size.scale.SEEN_FACTOR": (
        "the most workers of a job, as a multiple of its largest number of workers so far"
    ),
    "kfext.state.running.operation.FRESH_SECONDS": (
        "seconds after a checkpoint in which the number of workers may change"
    ),
    "kfext.state.running.checkpoint_requests.BACK_OFF_SECONDS": (
        "seconds that a job is ineligible if no checkpoint comes within 120 s"
    ),
    "kfext.core.lifecycle.patience.STRIKES": (
        "failed placements in a row after which kfext releases a job, or suspends a `required` job"
    ),
    "kfext.core.lifecycle.situation._FIRST_BACKOFF": (
        "seconds of back-off after the first failed placement, doubled after each further failure"
    ),
    "kfext.core.lifecycle.situation._LONGEST_BACKOFF": "seconds of the longest back-off",
    "kfext.model.job_state.EXCLUDED_SECONDS": (
        "seconds that a job avoids a node where its pod was not bound"
    ),
    "kfext.core.lifecycle.queued.RELEASE_SECONDS": (
        "seconds after which `releaseAfter: auto` releases a job that waiting does not help, or "
        "that has an unbound volume claim"
    ),
    "kfext.state.reports.progress.USUAL": "seconds between two reads of a log, usually",
    "kfext.state.reports.progress.OPTED_IN": (
        "seconds between two reads of the log of a job with `resize`, `elastic`, `migrate` or "
        "`preempt`"
    ),
    "kfext.state.reports.progress.SOON": (
        "seconds between two reads of a log until two reads have shown progress; with over 60 "
        "running jobs, a twentieth of their number"
    ),
    "kfext.state.reports.progress.SELDOM": (
        "seconds between two reads of a log that showed no progress for half an hour, or for 5 "
        "minutes while over 200 jobs run"
    ),
    "kfext.state.reports.progress.AWAITED": (
        "seconds between two reads of a log while kfext waits for a checkpoint"
    ),
    "kfext.state.reports.progress.MAX_A_SECOND": ("reads of logs a second, in the whole cluster"),
    "kfext.state.waiting.fairness.LONGEST_WAIT": (
        "with `queue.fairness: usage`, seconds of waiting after which usage no longer puts other "
        "jobs before a job"
    ),
    "kfext.kube.lease._FRESH_SECONDS": (
        "seconds without a renewal of the Lease after which the webhook holds no new job"
    ),
}
"""Dotted constant, or field of a class with its default -> its meaning."""


def figures() -> str:
    """The table of the constants that users meet, with their values."""
    rows = (_row(text, f"{_constant(dotted):,.15g}") for dotted, text in FIGURES.items())
    return "".join(("| figure | Value |\n", "|---|---|\n", *rows))


def _constant(dotted: str) -> float:
    holder, _, name = dotted.rpartition(".")
    module, _, of_class = holder.rpartition(".")
    if of_class[0].isupper():
        return float(getattr(getattr(importlib.import_module(module), of_class)(), name))
    return float(getattr(importlib.import_module(holder), name))


def fields(plural: str) -> str:
    """The table of the fields of a CRD, without the fields of all Kubernetes objects."""
    crd = read(CRDS / f"kfext.dev_{plural}.yaml")["spec"]["versions"][0]
    schema = crd["schema"]["openAPIV3Schema"]
    rows = (
        _row(f"`{path}`", _type(field), field.get("description", ""))
        for top in ("spec", "status")
        for path, field in _fields(top, schema["properties"].get(top, {}))
        if path != top
    )
    return "".join(("| field | type | meaning |\n", "|---|---|---|\n", *rows))


def _fields(path: str, field: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a field and the fields in it, by their path; elements of a list as `path[]`."""
    yield path, field
    if path.endswith("conditions"):
        return  # has the form that all conditions of Kubernetes have
    inner = field.get("items", {})
    under = f"{path}[]" if inner else path
    for name, child in (inner or field).get("properties", {}).items():
        yield from _fields(f"{under}.{name}", child)


def _type(field: dict[str, Any]) -> str:
    words = field.get("enum")
    if words:
        return ", ".join(f"`{word}`" for word in words)
    kind = str(field.get("type", ""))
    return f"list of {field['items'].get('type', '')}s" if kind == "array" else kind


def _row(*cells: str) -> str:
    texts = (" ".join(cell.split()).replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(texts)} |\n"


def commands() -> str:
    """Each command with its arguments and a table of its own options."""
    return "\n".join(_command(name, command) for name, command in sorted(cli.commands.items()))


def common_options() -> str:
    """The options that most commands have."""
    return _options(option for option in _all_options() if _is_common(option))


def _command(name: str, command: click.Command) -> str:
    text = " ".join((command.help or "").replace("\b", "").split("\f")[0].split())
    arguments = [
        argument.make_metavar(click.Context(command))
        for argument in command.params
        if isinstance(argument, click.Argument)
    ]
    options = [option for option in _options_of(command) if not _is_common(option)]
    table = f"\n{_options(options)}" if options else ""
    return f"### `{' '.join(('kfext', name, *arguments))}`\n\n{text}\n{table}"


def _options_of(command: click.Command) -> list[click.Option]:
    return [option for option in command.params if isinstance(option, click.Option)]


def _all_options() -> list[click.Option]:
    return [option for command in cli.commands.values() for option in _options_of(command)]


def _is_common(option: click.Option) -> bool:
    """Return whether most commands have the option, with the same meaning."""
    same = [(other.opts, other.help) for other in _all_options()].count((option.opts, option.help))
    return same > len(cli.commands) / 2


def _options(options: Iterable[click.Option]) -> str:
    rows = {_row(_names(option), _default(option), option.help or ""): None for option in options}
    return "".join(("| option | Default | meaning |\n", "|---|---|---|\n", *rows))


def _names(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if option.is_flag:
        return names
    if isinstance(option.type, click.Choice):
        return f"{names} {', '.join(map(str, option.type.choices))}"
    return f"{names} {(option.metavar or option.type.name).upper()}"


def _default(option: click.Option) -> str:
    if not option.show_default or option.default is None:
        return ""
    if option.secondary_opts:
        return f"`{(option.opts if option.default else option.secondary_opts)[0]}`"
    return f"`{option.default}`"


def series_of_the_controller() -> str:
    """The metrics of a controller that leads."""
    metrics, planner = ControllerMetrics(of_jobs=False), Planner()
    metrics.follow(planner)
    metrics.follow_watches({})
    metrics.follow_events(lambda: 0)
    metrics.lead(planner)
    return _series(metrics.registry)


def series_of_jobs() -> str:
    """The metrics of each job."""
    registry = CollectorRegistry()
    registry.register(Scraped(lambda: job_series(list)))
    return _series(registry)


def series_of_the_webhook() -> str:
    """The metrics of a webhook."""
    return _series(webhook.Metrics(synced=bool, controller_alive=bool).registry)


def series_of_the_agent() -> str:
    """The metrics of the agent on a node."""
    return _series(agent_registry(tuple, tuple))


def _series(registry: CollectorRegistry) -> str:
    rows = sorted(
        _row(f"`{_name(family)}`", labels, family.type, family.documentation.rstrip("."))
        for family, labels in _families(registry)
    )
    return "".join(("| series | labels | type | meaning |\n", "|---|---|---|---|\n", *rows))


def _families(registry: CollectorRegistry) -> Iterator[tuple[Metric, str]]:
    """Yield each family with the names of its labels, which a family without series shows too."""
    for collector in registry._collector_to_names:  # the only list of them
        for family in collector.collect():
            names = getattr(family, "_labelnames", getattr(collector, "_labelnames", ()))
            yield family, ", ".join(f"`{name}`" for name in names)


def _name(family: Metric) -> str:
    return family.name + "_total" * (family.type == "counter")
