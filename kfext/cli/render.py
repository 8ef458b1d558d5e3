"""`kfext render`: shows how admission would change a job, using the webhook's own functions."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import click
import orjson
import yaml

from kfext.cli.documents import is_job, load, title_of
from kfext.cli.output import plain
from kfext.core.admission.new_job import mutate_job
from kfext.core.admission.review import ReviewContext, ReviewResult
from kfext.core.patches.json_patch import patched
from kfext.core.words import CLAUSE
from kfext.errors import UserError
from kfext.model.namespace import Namespace, parse_namespace
from kfext.model.policy import parse_policy
from kfext.model.tolerant import mapping
from kfext.names import DOMAIN, MANAGED


@dataclass(frozen=True, slots=True)
class Review:
    """A document and the result of its admission; only training jobs are changed."""

    document: Any
    result: ReviewResult
    is_job: bool = True

    @property
    def after(self) -> Any:
        """The document as admission would store it."""
        return patched(self.document, self.result.ops)

    @property
    def warnings(self) -> list[str]:
        """The warnings that the API server would return."""
        title = title_of(self.document)
        return [f"{title}: warning: {warning}" for warning in self.result.warnings]

    @property
    def notes(self) -> Iterator[str]:
        """The decisions of admission with their reasons, or the reason for its refusal."""
        title = title_of(self.document)
        if not self.is_job:
            yield f"{title}: not a training job, left unchanged"
        if self.result.refusal:
            yield f"{title}: refused: {self.result.refusal}"
        else:
            for verdict in self.result.verdicts:
                first, *more = verdict.message.split(CLAUSE)
                yield f"{title}: {verdict.reason}: {first}"
                yield from (f"  - {clause}" for clause in more)
        yield from self.warnings


@click.command("render")
@click.option("-f", "--filename", "files", multiple=True, required=True, type=click.File("rb"))
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.File("rb"),
    help="File with TrainingPolicies; a policy that does not select the namespace has no effect.",
)
@click.option("--namespace-file", type=click.File("rb"), help="File with the Namespace.")
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

    It needs no cluster, and does not show changes to pods. Without --namespace-file, it assumes a
    managed namespace without settings. Exits with code 1 if a job would be refused.
    """
    reviews, notes = render(
        documents=[item for file in files for item in load(file)],
        policies=[item for file in policies for item in load(file)],
        namespace=next(iter(load(namespace_file)), None) if namespace_file else None,
    )
    for line in notes:
        click.echo(plain(line), err=True)
    if any(reviewed.result.refusal for reviewed in reviews):
        sys.exit(1)
    click.echo(render_reviews(reviews, output=output), nl=False)


def render(
    *, documents: list[Any], policies: list[Any], namespace: Any
) -> tuple[list[Review], list[str]]:
    """Return the documents as admission reviews them, and notes for stderr.

    Raises UserError if an item of `policies` is no TrainingPolicy, or `namespace` no Namespace.
    """
    context = _context(policies, namespace)
    notes = [
        f"note: TrainingPolicy {policy.name} does not select the namespace"
        for policy in context.policies
        if not policy.selector.matches(context.namespace.labels)
    ]
    reviews = [review(document, context) for document in documents]
    return reviews, [*notes, *(note for reviewed in reviews for note in reviewed.notes)]


def render_reviews(reviews: Sequence[Review], *, output: str) -> str:
    """Return the documents after admission as `yaml` or `json`, or one `patch` for each."""
    if output == "patch":
        return "".join(_json(list(reviewed.result.ops)) for reviewed in reviews)
    documents = [reviewed.after for reviewed in reviews]
    if output == "yaml":
        return yaml.safe_dump_all(documents, sort_keys=False, width=10_000)
    if len(documents) == 1:
        return _json(documents[0])
    return _json({"apiVersion": "v1", "kind": "List", "items": documents})


def review(document: Any, context: ReviewContext) -> Review:
    """Return the review of a document by admission. Raises UserError for a malformed job."""
    if not is_job(document):
        return Review(document, ReviewResult(), is_job=False)
    if problems := _not_strings(document):
        return Review(document, ReviewResult(refusal="; ".join(problems)))
    return Review(document, mutate_job(document, context))


def _context(policies: list[Any], namespace: Any) -> ReviewContext:
    for policy in policies:
        if mapping(policy).get("kind") != "TrainingPolicy":
            raise UserError(f"--policy requires a TrainingPolicy, not {title_of(policy)}")
    if namespace is not None and mapping(namespace).get("kind") != "Namespace":
        raise UserError(f"--namespace-file requires a Namespace, not {title_of(namespace)}")
    managed = Namespace("", labels={MANAGED: "true"})
    return ReviewContext(
        namespace=parse_namespace(mapping(namespace)) if namespace else managed,
        policies=tuple(map(parse_policy, policies)),
        controller_alive=True,
    )


def _not_strings(document: Any) -> list[str]:
    """Return a message for each kfext annotation that is not a string, as a bare off or 0.5."""
    annotations = mapping(mapping(mapping(document).get("metadata")).get("annotations"))
    return [
        f"annotation {key} is {orjson.dumps(value).decode()}, not a string: put it in quotes"
        for key, value in annotations.items()
        if key.startswith(f"{DOMAIN}/") and not isinstance(value, str)
    ]


def _json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n"
