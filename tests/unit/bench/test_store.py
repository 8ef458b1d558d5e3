"""Runs that are interleaved: their order, and what is stored of them."""

from typing import Any

import pytest

from e2e.bench.store import Interleaved, SpoiledError, Store, first_unspoiled


def arms(*, repeats: int) -> Interleaved:
    stores = {name: Store(name) for name in ("a", "b", "c", "alone")}
    return Interleaved(stores, repeats=repeats, once=["alone"])


def test_each_arm_runs_once_in_each_repeat_and_the_repeats_come_one_after_the_other() -> None:
    turns = arms(repeats=6).missing()
    assert [repeat for repeat, _ in turns] == sorted(repeat for repeat, _ in turns)
    assert sorted(turns) == sorted(
        (repeat, name)
        for repeat in range(6)
        for name in ("a", "b", "c", "alone")
        if name != "alone" or repeat == 0
    )
    first = [name for repeat in range(6) for name in [next(n for r, n in turns if r == repeat)]]
    assert len(set(first)) > 1


def test_what_was_broken_off_goes_on_where_it_was() -> None:
    begun, done = arms(repeats=2), list[tuple[int, str]]()

    def one(repeat: int, name: str) -> dict[str, Any]:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append((repeat, name))
        return {"repeat": repeat, "name": name}

    all_of_them = begun.missing()
    with pytest.raises(KeyboardInterrupt):
        begun.measure(one)
    assert arms(repeats=2).missing() == all_of_them[3:]
    stored = [run for some in arms(repeats=2).runs().values() for run in some]
    assert sorted((run["repeat"], run["name"]) for run in stored) == sorted(done)
    begun.forget()
    assert begun.missing() == all_of_them
    assert begun.runs() == {}


TRIES = {
    "the first counts": ([True], ("run 1", 0)),
    "the third counts": ([False, False, True], ("run 3", 2)),
}


@pytest.mark.parametrize(("counts", "found"), TRIES.values(), ids=TRIES)
def test_the_first_run_that_counts_comes_with_how_many_did_not(
    counts: list[bool], found: tuple[str, int]
) -> None:
    tries = iter(enumerate(counts, 1))

    def one() -> str:
        number, good = next(tries)
        if not good:
            raise SpoiledError("something failed")
        return f"run {number}"

    assert first_unspoiled("arm", one) == found


def test_a_run_that_never_counts_is_an_error() -> None:
    def one() -> str:
        raise SpoiledError("something failed")

    with pytest.raises(RuntimeError, match="arm: 3 runs were spoiled"):
        first_unspoiled("arm", one)
