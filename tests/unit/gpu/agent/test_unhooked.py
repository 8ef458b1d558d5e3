import pytest

from kfext.gpu.agent.card import SharedCard
from kfext.gpu.agent.report import SharerReport
from kfext.gpu.agent.sharer import Sharer
from kfext.gpu.agent.unhooked import PATIENCE
from kfext.gpu.hook import words
from kfext.gpu.hook.gate import WAIT
from kfext.model.shared_gpu import CALLBACK_LIST, HOOK_FAILED, NO_FRAMEWORK, OLD_TENSORFLOW
from tests.unit.gpu.agent.hooked import HIGH, LOW, Hooked, joined


def without_hook(card: SharedCard, pod: str, reason: int) -> Hooked:
    """Have a process come that states why it has no hook, and go."""
    hooked = Hooked()
    hooked.own.words[words.UNHOOKED] = reason
    card.join(pod, hooked.process)
    card.leave(pod, hooked.process.number)
    return hooked


def of(card: SharedCard, pod: str, *, now: float = 2.0) -> SharerReport:
    card.look(now)
    (found,) = (sharer for sharer in card.report(now).sharers if sharer.pod == pod)
    return found


REASONS = {
    words.FAILED: HOOK_FAILED,
    words.OLD_TENSORFLOW: OLD_TENSORFLOW,
    words.CALLBACK_LIST: CALLBACK_LIST,
    99: "",
    2**64 - 1: "",
}


@pytest.mark.parametrize(("reason", "want"), REASONS.items())
def test_what_a_process_without_a_hook_states_is_shown(
    card: SharedCard, reason: int, want: str
) -> None:
    card.promise("low", ("team", "low"), LOW, now=1.0)
    came = without_hook(card, "low", reason)
    assert of(card, "low").unhooked == want
    assert came.read().messages == 0, "there is nothing to lead"


def test_it_says_nothing_of_those_that_have_one(card: SharedCard) -> None:
    joined(card, "low", LOW)
    without_hook(card, "low", words.FAILED)
    assert of(card, "low").unhooked == ""


def test_a_hook_that_fails_is_shown_and_its_beacon_is_believed_no_more(card: SharedCard) -> None:
    high, low = joined(card, "high", HIGH), joined(card, "low", LOW)
    high.is_busy(1.9)
    card.look(2.0)
    assert low.read().word(2.0) == WAIT
    assert of(card, "high").beacon_age == pytest.approx(0.1)
    high.own.words[words.UNHOOKED] = words.FAILED
    found = of(card, "high")
    assert (found.unhooked, found.beacon_age) == (HOOK_FAILED, None)


def test_what_a_pod_without_a_hook_does_is_unknown_and_not_nothing(card: SharedCard) -> None:
    card.promise("low", ("team", "low"), LOW, now=1.0)
    failed = joined(card, "high", HIGH)
    failed.own.words[words.MEMORY] = 2**30
    assert (of(card, "low").harvest, of(card, "low").memory) == (None, None)
    assert (of(card, "high").harvest, of(card, "high").memory) == (0.0, 2**30)
    failed.own.words[words.UNHOOKED] = words.FAILED
    assert (of(card, "high").harvest, of(card, "high").memory) == (None, None)


def test_the_memory_of_keras_is_unknown(card: SharedCard) -> None:
    joined(card, "high", HIGH).own.words[words.MEMORY] = 0
    assert of(card, "high").memory is None


def test_a_pod_of_which_nothing_comes_is_shown_after_a_while(card: SharedCard) -> None:
    card.promise("low", ("team", "low"), LOW, now=1.0)
    assert of(card, "low", now=PATIENCE).unhooked == ""
    assert of(card, "low", now=1.0 + PATIENCE).unhooked == NO_FRAMEWORK
    hooked = Hooked()
    card.join("low", hooked.process)
    assert of(card, "low", now=2.0 + PATIENCE).unhooked == ""
    card.leave("low", hooked.process.number)
    assert of(card, "low", now=3.0 + PATIENCE).unhooked == "", "it has ended, or begins again"


def test_it_gives_way_once_a_process_with_a_hook_has_come_and_while_that_works() -> None:
    sharer, hooked = Sharer(), Hooked()
    sharer.promise(("team", "low"), LOW, now=1.0)
    assert not sharer.seen().gives_way
    sharer.join(hooked.process)
    assert sharer.seen().gives_way
    hooked.own.words[words.UNHOOKED] = words.FAILED
    assert not sharer.seen().gives_way
