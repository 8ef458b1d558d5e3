"""What a person sees of what takes long: bars on a terminal, plain lines elsewhere."""

import io

import pytest
from rich.console import Console

from e2e.testbed import progress


def _shown_on(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> io.StringIO:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=80)
    monkeypatch.setattr(progress, "_live", progress._Live(console))
    return file


def test_a_log_gets_a_line_when_a_step_begins_and_one_when_it_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = _shown_on(monkeypatch, terminal=False)
    with progress.step("build [etcd]", expect="1 minute"):
        pass
    assert file.getvalue().splitlines() == [
        "  build [etcd] ... (about 1 minute)",
        "  build [etcd]: done in 0.0 s",
    ]


def test_a_log_gets_a_line_for_each_quarter_of_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    file = _shown_on(monkeypatch, terminal=False)
    with progress.bar("ddp", 8) as advance:
        for done in range(9):
            advance(done, "steps")
    assert file.getvalue().splitlines() == [f"    ddp: {done} of 8 steps" for done in (2, 4, 6, 8)]


def test_a_step_that_fails_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    file = _shown_on(monkeypatch, terminal=False)
    with pytest.raises(RuntimeError), progress.step("build etcd"):
        raise RuntimeError
    assert file.getvalue().splitlines()[-1].startswith("  build etcd: failed after")


def test_a_terminal_gets_bars_and_keeps_the_lines_said_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = _shown_on(monkeypatch, terminal=True)
    with progress.step("train"), progress.bar("ddp [a]", 8) as advance:
        advance(4, "steps")
        progress.say("half of it")
    assert "half of it" in file.getvalue()
    assert "━" in file.getvalue()
    assert "ddp [a]" in file.getvalue()
    assert "train: done in" in file.getvalue()
