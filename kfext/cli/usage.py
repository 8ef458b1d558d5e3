"""`kubectl kfext usage`: what each namespace used of the cluster, holds and waits for."""

import asyncio
import time
from dataclasses import asdict

import click

from kfext.cli.cluster import ClusterOptions, cluster_options
from kfext.cli.output import Columns, columns, format_output, output_option
from kfext.core.queue.usage import UsageRecord, decode_usage
from kfext.core.words import age
from kfext.errors import UserError
from kfext.kube.usage_record import read_usage

_COLUMNS: Columns = {
    "NAMESPACE": lambda line: line["namespace"],
    "WEIGHT": lambda line: f"{line['weight']:g}",
    "USED": lambda line: f"{100 * line['used']:.1f} %",
    "HELD": lambda line: f"{100 * line['held']:.1f} %",
    "WAITING": lambda line: f"{line['waiting']:g}",
}


@click.command()
@output_option
@cluster_options
def usage(*, output: str, cluster: ClusterOptions) -> None:
    """List what namespaces used of the cluster, their weights, what they hold, their waiting jobs.

    You need the right to get the ConfigMap kfext-usage in kfext-system.
    """
    record = decode_usage(asyncio.run(_read(cluster)))
    if not record.at:
        raise UserError(
            "no usage is recorded: a TrainingPolicy without namespaceSelector must set "
            "queue.fairness to usage; the first record takes up to ten minutes"
        )
    click.echo(shown_usage(record, output=output, now=time.time()), nl=False)


async def _read(cluster: ClusterOptions) -> str:
    """Return the record, empty without one. Raises ApiError, NoAccess."""
    async with cluster.connect() as client:
        return await read_usage(client)


def shown_usage(record: UsageRecord, *, output: str, now: float) -> str:
    """Return a record as text, json or yaml, the largest usage first. `now`: in epoch seconds."""
    lines = [
        {"namespace": name, **asdict(found), "used": record.mean(name)}
        for name, found in sorted(record.namespaces.items(), key=lambda each: -each[1].used)
    ]
    ago = max(now - record.at, 0.0)
    values = {"ageSeconds": int(ago), "halfLifeSeconds": record.half_life, "namespaces": lines}
    foot = f"{age(ago)} ago; usage counts half after {age(record.half_life)}"
    return format_output(values, output=output, text=lambda: [*columns(_COLUMNS, lines), foot])
