"""How kopf follows the kinds that people write."""

from dataclasses import fields

from kfext.controller.controller import _STALE_SECONDS
from kfext.controller.watches import operator_settings


def test_a_stream_that_brings_nothing_is_opened_anew_before_a_mirror_counts_as_too_old() -> None:
    watching = operator_settings().watching
    assert "inactivity_timeout" in {one.name for one in fields(watching)}, "kopf knows it"
    assert watching.inactivity_timeout + (watching.connect_timeout or 0.0) < _STALE_SECONDS
