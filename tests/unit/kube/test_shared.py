"""A cache that is bounded by bytes."""

from kfext.kube.shared import Shared


def test_equal_texts_are_decoded_once() -> None:
    cache: Shared[list[int]] = Shared()
    assert cache.of(b"text", list) is cache.of(b"text", list)


def test_the_texts_together_have_at_most_so_many_bytes_and_the_oldest_go() -> None:
    cache: Shared[bytes] = Shared(most=100, longest=50)
    for number in range(1000):
        cache.of(b"%08d" % number, bytes)
        assert cache.bytes <= 100
    assert cache.of(b"%08d" % 999, lambda text: b"decoded again") == b"00000999"
    assert cache.of(b"%08d" % 0, lambda text: b"decoded again") == b"decoded again"


def test_a_long_text_is_not_kept() -> None:
    cache: Shared[int] = Shared(most=100, longest=50)
    assert cache.of(b"x" * 51, len) == 51
    assert cache.bytes == 0
