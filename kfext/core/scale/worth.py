"""To how many workers a job grows: back to what it asked for, and beyond while that pays.

Sources: the marginal gain of Optimus (Peng et al., EuroSys 2018), the price of a restart and the
bound of twice the largest size seen of Pollux (Qiao et al., OSDI 2021).
"""

from collections.abc import Mapping
from itertools import pairwise

from kfext.core.scale.sizes import Sizes
from kfext.core.scale.speed import Speed, fitted

SEEN_FACTOR = 2
"""How many times the largest size seen a job may have: beyond that its speed is a guess."""
HORIZON = 600.0
"""Seconds that a job whose end is unknown is taken to run still, when growth is weighed."""
TRIAL_FACTOR = 10
"""How many pauses a job must still run for a trial of one worker more."""
LEAST_GAIN = 0.02
"""The share by which a size must have been faster than the next smaller one to be grown to."""


def best_size(
    sizes: Sizes,
    *,
    speeds: Mapping[int, float],
    largest: int,
    room: int,
    pause: float,
    left: float | None,
) -> int:
    """Return the number of workers to grow to, the present one if growing does not pay.

    What the user asked for is given back if there is room, unless the job ends before that makes up
    for the pause. Beyond it each worker must save more time than a pause costs. A job that has run
    with its present size alone may try one worker more.

    `speeds`: steps a second by number of workers, as measured (see `fitted`).
    `largest`: the largest number of workers that was seen running.
    `room`: the most workers that there is room for.
    `pause`: the seconds that one change of size costs the job.
    `left`: the seconds to its end at its present speed, None if unknown.
    """
    bound = min(room, sizes.most, SEEN_FACTOR * largest)
    if bound <= sizes.now or sizes.now < 1:
        return sizes.now
    speed = fitted(speeds)
    start = sizes.now
    if sizes.now < sizes.asked:
        start = min(sizes.asked, bound)
        if left is not None and _saved(sizes.now, start, speed, left=left) <= pause:
            return sizes.now
    bound = _before_useless(speeds, start=start, bound=bound)
    if sizes.now not in speeds or bound <= start:
        return start  # what the present size gains has to be known before the next is weighed
    if speed is None:
        tries = start == sizes.now and (left is None or left > TRIAL_FACTOR * pause)
        return start + 1 if tries else start
    steps = (HORIZON if left is None else left) * speed.at(sizes.now)
    return _while_it_pays(speed, start=start, bound=bound, steps=steps, pause=pause)


def _saved(now: int, then: int, speed: Speed | None, *, left: float) -> float:
    """Return the seconds that a job saves until its end if it gets back what it asked for.

    At most it is as much faster as it has more workers. So much is expected if nothing is known, or
    if it was slower with more: its steps may be larger then, and its user asked for them.
    """
    ratio = speed.at(then) / speed.at(now) if speed else 0.0
    if ratio <= 1.0:
        ratio = then / now
    return left * (1.0 - 1.0 / ratio)


def _before_useless(speeds: Mapping[int, float], *, start: int, bound: int) -> int:
    """Return the most workers up to `bound` before a size that was seen to gain nothing."""
    for smaller, size in pairwise(sorted(speeds)):
        if start < size <= bound and speeds[size] < (1.0 + LEAST_GAIN) * speeds[smaller]:
            return size - 1
    return bound


def _while_it_pays(speed: Speed, *, start: int, bound: int, steps: float, pause: float) -> int:
    """Return the size beyond which the next worker saves no more time than a pause costs.

    `steps`: the steps that remain, or that are looked at.
    """
    size = start
    while size < bound and steps / speed.at(size) - steps / speed.at(size + 1) > pause:
        size += 1
    return size
