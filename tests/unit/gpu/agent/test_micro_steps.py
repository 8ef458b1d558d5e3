"""What is shown of the micro-steps of a job, which its own processes have measured."""

import pytest

from kfext.gpu.agent.card import SharedCard
from kfext.gpu.hook import words
from kfext.model.shared_gpu import LONGEST_COARSE
from tests.unit.gpu.agent.hooked import HIGH, LOW, NS, Hooked, joined

STATED: dict[str, tuple[int, float, float | None, bool]] = {
    "it has not been calibrated": (words.WATCHING, 0.08, None, False),
    "all micro-steps are as short as they should be": (words.READY, 0.004, 0.004, False),
    "one is longer": (words.COARSE, 0.08, 0.08, True),
    "no process passes the gate any more": (0, 0.08, None, False),
    "it states what no hook does": (99, 0.08, None, False),
    "it states an age": (words.COARSE, 1e9, LONGEST_COARSE, True),
}


@pytest.mark.parametrize(("gate", "seconds", "longest", "coarse"), STATED.values(), ids=STATED)
def test_what_a_process_states(
    gate: int, seconds: float, longest: float | None, coarse: bool, card: SharedCard
) -> None:
    state(joined(card, "low", LOW), gate, seconds)
    assert shown(card, "low") == (longest, coarse)


def test_of_several_processes_the_longest_counts(card: SharedCard) -> None:
    state(joined(card, "low", LOW), words.COARSE, 0.02)
    other = Hooked()
    card.join("low", other.process)
    state(other, words.READY, 0.03)
    assert shown(card, "low") == (0.03, True)


def test_one_of_high_priority_has_no_gate(card: SharedCard) -> None:
    state(joined(card, "high", HIGH), words.COARSE, 0.08)
    assert shown(card, "high") == (None, False)


def state(hooked: Hooked, gate: int, seconds: float) -> None:
    hooked.own.words[words.HOOKED] = gate
    hooked.own.words[words.LONGEST_NS] = round(seconds * NS)


def shown(card: SharedCard, pod: str) -> tuple[float | None, bool]:
    (found,) = (sharer for sharer in card.report(2.0).sharers if sharer.pod == pod)
    return found.longest, found.coarse
