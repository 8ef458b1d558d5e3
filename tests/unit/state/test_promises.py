"""What is about to be freed is kept for the job that it is for."""

from kfext.core.ledger.ledger import Ledger
from kfext.state.promises import Promises
from tests.builders import job, node


class Bed:
    def __init__(self) -> None:
        self.ledger = Ledger([node("a", cpu="4")])
        self.freed = 0
        self.promises = Promises(self.ledger, self._free)
        gang = job().worker(2, cpu="1")
        self.members = gang.members()
        self.places = {member.key: "a" for member in self.members}

    def _free(self) -> None:
        self.freed += 1

    @property
    def left(self) -> int:
        return int(self.ledger.free(("cpu",))[0, 0])

    def keep(self, uid: str = "one") -> None:
        self.promises.keep(uid, self.members, self.places)


def test_what_is_promised_is_taken_for_all_but_the_job() -> None:
    bed = Bed()
    bed.keep()
    assert bed.left == 2000
    own = bed.ledger.free(("cpu",), ignoring=bed.promises.of("one"))
    assert int(own[0, 0]) == 4000
    assert bed.promises.of("another") == ()


def test_a_promise_replaces_the_one_before() -> None:
    bed = Bed()
    bed.keep()
    bed.keep()
    assert (bed.left, bed.promises.kept()) == (2000, ("one",))


def test_a_promise_that_is_dropped_frees_what_it_kept_and_has_others_looked_at() -> None:
    bed = Bed()
    bed.keep()
    bed.promises.drop("one")
    assert (bed.left, bed.freed, bed.promises.kept()) == (4000, 1, ())


def test_to_drop_none_frees_nothing() -> None:
    bed = Bed()
    bed.promises.drop("one")
    assert bed.freed == 0
