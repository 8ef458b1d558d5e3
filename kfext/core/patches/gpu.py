"""What patches write about the parts of GPUs that a job gets: on its templates, and on its pods."""

import json

from kfext.core.patches.json_patch import Operation, pointer
from kfext.core.settings.table import OF_A_JOB, parsed
from kfext.model.gpu import MOST_SLOTS, UNITS, GpuShare, encode_share
from kfext.model.job import TrainingJob
from kfext.model.plan import Plan
from kfext.model.replica_group import ReplicaGroup
from kfext.names import GPU_SLOTS, GPU_TERMS


def on_template(job: TrainingJob, group: ReplicaGroup, plan: Plan) -> dict[str, str | None]:
    """Return the annotations of a template from which the webhook knows what each pod requests.

    The settings are written too, as they may have been edited since the job was created; the last
    good value of one that is malformed now is there already.
    """
    present = {*job.annotations, *job.template_settings} & OF_A_JOB
    written = {key: job.annotations.get(key) for key in present if _is_good(job, key)}
    written[GPU_SLOTS] = None
    type_, share = group.type.lower(), plan.shares.get(group.type.lower())
    slots = {key.index: slot for key, slot in plan.slots.items() if key.type == type_}
    if share is None or not slots:
        return written
    parts = (f"{share.units}@{slots[at]}" if at in slots else "" for at in range(max(slots) + 1))
    return {**written, GPU_SLOTS: ",".join(parts)}


def on_pod(share: GpuShare) -> Operation:
    """Return the operation that writes on a pod, which has annotations, the terms of its part."""
    value = json.dumps(encode_share(share), separators=(",", ":"))
    return {"op": "add", "path": pointer("metadata", "annotations", GPU_TERMS), "value": value}


def part_of(written: str, index: int) -> tuple[int, int] | None:
    """Return the units and the slot of a replica by the annotation GPU_SLOTS, None without one."""
    parts = written.split(",", index + 1)
    units, at, slot = parts[index].partition("@") if index < len(parts) else ("", "", "")
    if not (at and units.isdecimal() and slot.isdecimal() and len(units) <= 3 and len(slot) <= 2):
        return None
    part = int(units), int(slot)
    return part if 0 < part[0] <= UNITS and part[1] < MOST_SLOTS else None


def _is_good(job: TrainingJob, key: str) -> bool:
    """Return whether a setting of a job is absent or well-formed."""
    return key not in job.annotations or bool(parsed(key, job.annotations[key]))
