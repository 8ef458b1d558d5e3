"""The object that an operator renders from a job, such as Trainer's JobSet of a TrainJob.

It has the job's templates. Any account that may create it can name any job as its controller. So it
counts only in the namespace and under the name of the job.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kfext.model.job import Templates, TrainingJob, parse_job, templates_in, with_templates
from kfext.model.pod import Pod
from kfext.model.tolerant import controller_in, mapping, text


@dataclass(frozen=True, slots=True)
class Rendered:
    """The object that an operator rendered from a job.

    `uid`: its own uid, the owner in its pods' metadata. `job_uid`: the uid of the job.
    `name`: its own name, which is the name of the job.
    """

    uid: str
    namespace: str
    name: str
    job_uid: str
    templates: Templates

    def belongs_to(self, job: TrainingJob) -> bool:
        """Return whether it was rendered from this job."""
        return self.key == rendered_key(job)

    @property
    def key(self) -> tuple[str, str, str]:
        """The namespace, the name and the uid of the job."""
        return self.namespace, self.name, self.job_uid


def rendered_key(job: TrainingJob) -> tuple[str, str, str]:
    """Return the `key` of the object that is rendered from a job."""
    return job.namespace, job.name, job.uid


def parse_rendered(raw: Mapping[str, Any]) -> Rendered | None:
    """Return the rendered object; None means that no job controls the object. Never raises."""
    metadata = mapping(raw.get("metadata"))
    owner = controller_in(metadata)
    job = parse_job({**owner, "metadata": {**metadata, "uid": owner.get("uid")}})
    if job is None or not job.kind.rendered:
        return None
    if owner.get("apiVersion") != job.kind.api_version or owner.get("name") != job.name:
        return None
    return Rendered(
        uid=text(metadata.get("uid")),
        namespace=job.namespace,
        name=job.name,
        job_uid=job.uid,
        templates=templates_in(
            job.kind, {**mapping(raw.get("spec")), "metadata": metadata}, job=job
        ),
    )


def as_rendered(job: TrainingJob, rendered: Rendered) -> TrainingJob:
    """Return a job with the rendered templates, or unchanged if they are from another job."""
    return with_templates(job, rendered.templates) if rendered.belongs_to(job) else job


def with_job_uid(pod: Pod, job_uid: str | None) -> Pod:
    """Return the pod with the job itself as its owner, if the uid of the job is known."""
    return replace(pod, owner_uid=job_uid) if job_uid and job_uid != pod.owner_uid else pod
