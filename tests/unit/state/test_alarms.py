from hypothesis import given
from hypothesis import strategies as st

from kfext.state.alarms import Alarms

acts = st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 50)), max_size=300)


@given(acts=acts, now=st.integers(0, 50))
def test_each_job_rings_once_at_the_last_time_that_was_set(
    acts: list[tuple[str, int | None]], now: int
) -> None:
    alarms, want = Alarms(), dict[str, int]()
    for uid, at in acts:
        if at is None:
            alarms.forget(uid)
            want.pop(uid, None)
        else:
            alarms.set(uid, at)
            want[uid] = at
    assert {uid: alarms.at(uid) for uid in want} == want
    assert alarms.next() == min(want.values(), default=float("inf"))
    rung = alarms.due(now)
    assert sorted(rung) == sorted(uid for uid, at in want.items() if at <= now)
    assert [want[uid] for uid in rung] == sorted(want[uid] for uid in rung)
    assert alarms.due(now) == []
    assert not any(uid in alarms for uid in rung)
    assert alarms.next() == min((at for at in want.values() if at > now), default=float("inf"))


def test_alarms_that_are_set_again_and_again_do_not_pile_up() -> None:
    alarms = Alarms()
    for at in range(10_000):
        alarms.set("a", at)
    assert len(alarms._heap) < 100
    assert alarms.due(9_998) == []
    assert alarms.due(9_999) == ["a"]
