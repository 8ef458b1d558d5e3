import pytest

from e2e.harness.standing import VARIABLE, lacks, named_or_running

LACKING = {
    "fake nodes, and there are more": (0, 25, 0, 20, ""),
    "fake nodes beside real ones": (2, 20, 0, 20, ""),
    "fewer fake nodes": (2, 19, 0, 20, "20 fake nodes (--fake-nodes 20)"),
    "real nodes beside fake ones": (2, 20, 2, 0, ""),
    "no real nodes": (0, 20, 2, 0, "2 real nodes (--real-nodes 2)"),
    "more real nodes than the tests reckon with": (3, 0, 2, 0, "2 real nodes (--real-nodes 2)"),
    "both": (
        *(0, 0, 2, 20),
        "2 real nodes (--real-nodes 2) and 20 fake nodes (--fake-nodes 20)",
    ),
}


@pytest.mark.parametrize(
    ("has_real", "has_fake", "real", "fake", "said"), LACKING.values(), ids=LACKING
)
def test_what_a_testbed_lacks_is_said_as_the_option_that_gives_it(
    has_real: int, has_fake: int, real: int, fake: int, said: str
) -> None:
    assert lacks(has_real, has_fake, real, fake) == said


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        pytest.param("does-not-exist", "up --name does-not-exist", id="there is none"),
        pytest.param("a/b", "a testbed's name is made of", id="it is no name"),
    ],
)
def test_a_testbed_that_is_not_there_fails_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, asked: str, said: str
) -> None:
    monkeypatch.setenv(VARIABLE, asked)
    with pytest.raises(pytest.fail.Exception, match=said), named_or_running("own"):
        pass
