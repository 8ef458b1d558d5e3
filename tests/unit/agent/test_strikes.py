from kfext.agent.strikes import EarlierStrikes
from kfext.model.shared_gpu import CardSharer, SharedGpu

LOW, HIGH, OTHER = (("team", name) for name in ("low", "high", "other"))
UIDS = {LOW: "uid-low", HIGH: "uid-high", OTHER: ""}
SHARERS = (CardSharer("uid-high", high=True), CardSharer("uid-low", strikes=2))


def strikes(*sharers: CardSharer) -> EarlierStrikes:
    made = EarlierStrikes(UIDS.__getitem__)
    made.read(SharedGpu("gpu-0", "n", 0, sharers=sharers))
    return made


def test_they_are_given_once_for_the_same_two_pods() -> None:
    made = strikes(*SHARERS)
    assert [made.take(LOW, HIGH), made.take(LOW, HIGH)] == [2, 0]


def test_beside_another_pod_of_high_priority_they_do_not_count() -> None:
    assert strikes(CardSharer("uid-before", high=True), SHARERS[1]).take(LOW, HIGH) == 0


def test_another_pod_has_none() -> None:
    made = strikes(SHARERS[0], CardSharer("uid-before", strikes=2))
    assert made.take(LOW, HIGH) == 0


def test_a_pod_whose_uid_is_not_known_has_none() -> None:
    assert strikes(SHARERS[0], CardSharer("", strikes=2)).take(OTHER, HIGH) == 0


def test_without_a_pod_of_high_priority_there_are_none() -> None:
    assert strikes(SHARERS[1]).take(LOW, OTHER) == 0
