"""`kfext render`: the changes of admission, by the webhook's own functions, without a cluster."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, Any

import click
import orjson
import yaml

from kfext.cli.documents import is_job, load, title_of
from kfext.cli.output import plain
from kfext.core.admission.new_job import mutate_job
from kfext.core.admission.review import Facts, Mutation
from kfext.core.patches.json_patch import Operation
from kfext.core.words import CLAUSE
from kfext.errors import UserError
from kfext.model.namespace import parse_namespace
from kfext.model.policy import TrainingPolicy, parse_policy
from kfext.model.tolerant import mapping
from kfext.model.verdict import Verdict
from kfext.names import DOMAIN, MANAGED


@dataclass(slots=True)
class Rendered:
    """The documents as admission would store them.

    `patches`: the patch of each document; empty if nothing changes.
    `notes`: lines for stderr.
    `verdicts`: why each job is held or not, and its changes.
    `warnings`: the notes that the API server would return.
    `refused`: whether admission would refuse a document.
    """

    documents: list[Any] = field(default_factory=list)
    patches: list[Sequence[Operation]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    refused: bool = False


@click.command("render")
@click.option("-f", "--filename", "files", multiple=True, required=True, type=click.File("rb"))
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.File("rb"),
    help="File with a TrainingPolicy; it must select the namespace.",
)
@click.option(
    "--namespace-file",
    type=click.File("rb"),
    help="File with the Namespace.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json", "patch"]),
    default="yaml",
    show_default=True,
)
def render_files(
    *,
    files: tuple[IO[bytes], ...],
    policies: tuple[IO[bytes], ...],
    namespace_file: IO[bytes] | None,
    output: str,
) -> None:
    """Print the jobs in files (- is stdin) as admission would change them, and why.

    No cluster is needed, and the changes of pods are not shown. Without --namespace-file the
    namespace is managed and has no settings. Exits with code 1 if a job would be refused.
    """
    rendered = render(
        documents=[item for file in files for item in load(file)],
        policies=[item for file in policies for item in load(file)],
        namespace=next(iter(load(namespace_file)), None) if namespace_file else None,
    )
    for line in rendered.notes:
        click.echo(plain(line), err=True)
    if rendered.refused:
        sys.exit(1)
    click.echo(written(rendered, output=output), nl=False)


def render(*, documents: list[Any], policies: list[Any], namespace: Any) -> Rendered:
    """Return the documents as admission would store them.

    Raises UserError if `policies` or `namespace` are of another kind.
    """
    facts = _facts(policies, namespace)
    rendered = Rendered()
    for policy in facts.policies:
        if not policy.selector.matches(facts.namespace_labels):
            rendered.notes.append(
                f"note: TrainingPolicy {policy.name} does not select the namespace"
            )
    for document in documents:
        _add(rendered, document, facts)
    return rendered


def written(rendered: Rendered, *, output: str) -> str:
    """Return the documents as `yaml` or `json`, or their patches, one per document."""
    if output == "patch":
        return "".join(_json(list(patch)) for patch in rendered.patches)
    if output == "yaml":
        return yaml.safe_dump_all(rendered.documents, sort_keys=False, width=10_000)
    if len(rendered.documents) == 1:
        return _json(rendered.documents[0])
    return _json({"apiVersion": "v1", "kind": "List", "items": rendered.documents})


def admitted(document: Any, facts: Facts) -> Rendered:
    """Return one document as admission would store it. Raises UserError if it is refused."""
    rendered = Rendered()
    _add(rendered, document, facts)
    if rendered.refused:
        raise UserError(rendered.notes[0])
    return rendered


def _facts(policies: list[Any], namespace: Any) -> Facts:
    parsed: list[TrainingPolicy] = []
    for policy in policies:
        if mapping(policy).get("kind") != "TrainingPolicy":
            raise UserError(f"--policy requires a TrainingPolicy, not {title_of(policy)}")
        parsed.append(parse_policy(policy))
    if namespace is not None and mapping(namespace).get("kind") != "Namespace":
        raise UserError(f"--namespace-file requires a Namespace, not {title_of(namespace)}")
    parsed_namespace = parse_namespace(mapping(namespace))
    return Facts(
        namespace_labels=parsed_namespace.labels if namespace else {MANAGED: "true"},
        namespace_annotations=parsed_namespace.annotations,
        policies=parsed,
        controller_alive=True,
    )


def _add(rendered: Rendered, document: Any, facts: Facts) -> None:
    title = title_of(document)
    mutation = Mutation()
    if not is_job(document):
        rendered.notes.append(f"{title}: not a training job, left unchanged")
    elif problems := _not_strings(document):
        mutation = Mutation(refusal="; ".join(problems))
    else:
        mutation = mutate_job(document, facts)
    if mutation.refusal:
        rendered.refused = True
        rendered.notes.append(f"{title}: refused: {mutation.refusal}")
    else:
        rendered.verdicts += mutation.verdicts
        for verdict in mutation.verdicts:
            first, *more = verdict.message.split(CLAUSE)
            rendered.notes.append(f"{title}: {verdict.reason}: {first}")
            rendered.notes += [f"  - {clause}" for clause in more]
    warnings = [f"{title}: warning: {warning}" for warning in mutation.warnings]
    rendered.warnings += warnings
    rendered.notes += warnings
    rendered.patches.append(mutation.ops)
    rendered.documents.append(_applied(document, mutation.ops))


def _not_strings(document: Any) -> list[str]:
    """Return the annotations that the API server would refuse: a bare off or 0.5."""
    annotations = mapping(mapping(mapping(document).get("metadata")).get("annotations"))
    return [
        f"annotation {key} is {orjson.dumps(value).decode()}, not a string: put it in quotes"
        for key, value in annotations.items()
        if key.startswith(f"{DOMAIN}/") and not isinstance(value, str)
    ]


def _applied(document: Any, operations: Sequence[Operation]) -> Any:
    """Return the patched document; kfext's patches set, remove or move members of objects."""
    document = orjson.loads(orjson.dumps(document))
    for operation in operations:
        parent, member = _member(document, operation["path"])
        if operation["op"] == "remove":
            del parent[member]
        elif operation["op"] == "move":
            source, moved = _member(document, operation["from"])
            parent[member] = source.pop(moved)
        else:
            parent[member] = operation["value"]
    return document


def _member(document: Any, path: str) -> tuple[Any, str]:
    """Return the object with the member at a JSON pointer, and the name of the member."""
    *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:])
    for key in parents:
        document = document[key]
    return document, last


def _json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n"
