"""Many jobs at once, some of them left to plain Kubernetes: no gang stays half bound."""

import pytest

from e2e.bench.half_gangs import crowd


@pytest.mark.long
@pytest.mark.parametrize("seed", [83, 97])
def test_no_gang_of_kfext_stays_half_bound(seed: int) -> None:
    account = crowd(seed, seconds=180.0, only_modelled=False, gated=False)
    figures, lines = account.figures(), "\n".join(account.lines())
    assert account.too_long == [], lines
    assert figures["started over twice"] == 0, figures
    assert figures["whole"] > figures["placed by kfext"] / 2, figures
