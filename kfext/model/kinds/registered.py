"""The kinds of training jobs that kfext handles. A new kind is an adapter and a line here."""

from collections.abc import Mapping

from kfext.model.kinds.job_kind import JobKind
from kfext.model.kinds.pytorchjob import PyTorchJob
from kfext.model.kinds.tfjob import TFJob
from kfext.model.kinds.trainjob import TrainJob

KINDS: Mapping[str, JobKind] = {kind.name: kind for kind in (PyTorchJob(), TFJob(), TrainJob())}
"""The kinds by name, as in an object's `kind`."""
