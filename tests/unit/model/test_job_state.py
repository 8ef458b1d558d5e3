from hypothesis import given
from hypothesis import strategies as st

from kfext.model.job_state import LIMIT, JobState, Observed, decode_state

times = st.integers(min_value=0, max_value=2**33).map(float)
states = st.builds(
    JobState,
    strikes=st.integers(min_value=0, max_value=100),
    excluded=st.dictionaries(st.text(max_size=8), times.filter(bool), max_size=5),
    suspended_at=times,
    retry_at=times,
    reason=st.text(max_size=30),
    message=st.text(max_size=100),
    generation=st.integers(min_value=0, max_value=2**31),
    queued_since=times,
    observed=st.dictionaries(
        st.sampled_from(["worker", "master"]),
        st.builds(
            Observed,
            template=st.integers(min_value=0, max_value=2**32 - 1),
            requests=st.builds(lambda cpu: {"pods": 1, "cpu": cpu}, st.integers(1, 2**40)),
            node_selector=st.sampled_from([(), (("pool", "x"), ("zone", "a"))]),
            untolerated=st.booleans(),
        ),
    ),
)


@given(states)
def test_a_state_reads_back_as_it_was_written(state: JobState) -> None:
    assert decode_state(state.encode()) == state


@given(
    excluded=st.dictionaries(st.text(max_size=60), times, max_size=400),
    message=st.text(max_size=2000) | st.just("\U0001f600" * 2000),
    reason=st.text(max_size=100),
)
def test_a_state_never_exceeds_4_KiB(excluded: dict[str, float], message: str, reason: str) -> None:
    written = JobState(excluded=excluded, message=message, reason=reason).encode()
    assert len(written.encode()) <= LIMIT
    assert decode_state(written).reason == reason


def test_what_has_to_go_is_the_exclusion_that_ends_first() -> None:
    excluded = {f"{i:050}": float(i + 1) for i in range(100)}
    kept = decode_state(JobState(excluded=excluded).encode()).excluded
    assert 0 < len(kept) < 100
    assert min(kept.values()) > max(excluded[node] for node in excluded.keys() - kept.keys())


def test_a_new_state_is_written_as_nothing() -> None:
    assert JobState().encode() == "{}"
