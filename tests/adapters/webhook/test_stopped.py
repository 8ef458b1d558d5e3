"""A true API server during and after the shutdown of `kfext webhook`."""

import itertools
import signal
from contextlib import nullcontext, suppress

import pytest

from e2e.testbed.api import ApiError
from e2e.testbed.cluster import Testbed
from kfext import names
from tests.adapters.webhook.running import Webhook, create, create_pod, review, until

_numbers = itertools.count()


@pytest.fixture
def stopped(webhook: Webhook) -> Webhook:
    webhook.process.send_signal(signal.SIGTERM)
    return webhook


def test_after_sigterm_the_webhook_is_unready_closes_connections_and_ends(stopped: Webhook) -> None:
    until(lambda: stopped.probe("/readyz")[0] in {503, 0}, what="not ready")
    with suppress(OSError):  # on a busy machine it may have ended
        assert review(stopped)["connection"] == "close"
    assert stopped.process.wait(timeout=30) == 0, stopped.output.read_text()
    assert "Traceback" not in stopped.output.read_text()


def test_X1_without_a_webhook_jobs_start_as_on_plain_kubernetes(
    testbed: Testbed, stopped: Webhook, namespaces: dict[str, str]
) -> None:
    stopped.process.wait(timeout=30)
    created = create(testbed, namespaces["managed"], "unseen")
    assert "annotations" not in created["metadata"]


SHARE = {names.GPU_SHARE: "0.5"}
WITHOUT_A_WEBHOOK = {
    "a job with a share": ("managed", SHARE, False),
    "a job with a share of one replica type": (
        "managed",
        {f"{names.GPU_SHARE}.worker": "0.5"},
        False,
    ),
    "a job that was released": ("managed", {**SHARE, names.RELEASED: "true"}, True),
    "a job with another setting of kfext": ("managed", {names.COLOCATION: "off"}, True),
    "a job without annotations": ("managed", {}, True),
    "a job with a share in an unmanaged namespace": ("plain", SHARE, True),
}


@pytest.mark.parametrize("kind", ["job", "pod"])
@pytest.mark.parametrize("case", WITHOUT_A_WEBHOOK.values(), ids=WITHOUT_A_WEBHOOK)
def test_without_a_webhook_only_objects_that_share_a_gpu_are_refused(
    testbed: Testbed,
    stopped: Webhook,
    namespaces: dict[str, str],
    case: tuple[str, dict[str, str], bool],
    kind: str,
) -> None:
    stopped.process.wait(timeout=30)
    make = create if kind == "job" else create_pod
    namespace, annotations, passes = case
    refused = pytest.raises(ApiError, match=f'failed calling webhook "sharing-{kind}s')
    with nullcontext() if passes else refused:
        make(testbed, namespaces[namespace], f"{kind}-{next(_numbers)}", annotations=annotations)
