"""The options of the commands, their errors, and the tables that --watch repeats."""

import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kfext.cli.jobs import ORDERS, _refresh
from kfext.cli.main import cli, main
from kfext.errors import UserError

REFUSED = {
    "a stream of JSON": (["top", "--watch", "-o", "json"], "omit -o"),
    "an expression without a log": (["explain", "x", "--regex", "a"], "--regex requires --log"),
    "an unknown order": (["top", "--sort", "name"], "'growth', 'cpu', 'workers', 'left'"),
}


@pytest.mark.parametrize(("arguments", "why"), REFUSED.values(), ids=REFUSED)
def test_wrong_usage_ends_with_code_2_and_says_what_is_allowed(
    arguments: list[str], why: str
) -> None:
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 2
    assert why in done.output


def test_every_order_is_offered() -> None:
    assert f"[{'|'.join(ORDERS)}]" in CliRunner().invoke(cli, ["top", "--help"]).output


def test_outside_a_terminal_an_empty_line_separates_two_tables(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for number in range(2):
        _refresh(f"HEAD\n{number}\n")
    assert capsys.readouterr().out == "HEAD\n0\n\nHEAD\n1\n\n"


def test_on_a_terminal_a_table_replaces_the_previous_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((4, 3)))
    _refresh("HEADING\nfirst\nsecond\nthird\n")
    assert capsys.readouterr().out == "\x1b[2J\x1b[1;1HHEAD\nfirs\n"


@pytest.mark.parametrize(
    ("flags", "option", "want"),
    [
        ([], "job_metrics", True),
        (["--no-job-metrics"], "job_metrics", False),
        ([], "certificates", True),
        (["--no-certificates"], "certificates", False),
    ],
)
def test_each_flag_of_the_controller_reaches_it_as_its_option(
    flags: list[str], option: str, want: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}

    async def run(**options: Any) -> None:
        given.update(options)

    monkeypatch.setattr("kfext.controller.main.run", run)
    monkeypatch.setattr("kfext.runtime.configure_logs", lambda _: None)
    done = CliRunner().invoke(cli, ["controller", *flags])
    assert (done.exit_code, given[option]) == (0, want)


SERVICES = {
    "webhook": (["--tls-name", "a", "--tls-ip", "127.0.0.1"], "extra_names", ("a", "127.0.0.1")),
    "agent": (["--node", "n", "--pod", "p", "--data-dir", "/"], "root", Path("/")),
}


@pytest.mark.parametrize("service", SERVICES)
def test_the_options_of_a_service_are_its_configuration(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, field, want = SERVICES[service]
    given: list[Any] = []

    async def run(config: Any) -> None:
        given.append(config)

    package = {"webhook": "kfext.webhook", "agent": "kfext.gpu.agent"}[service]
    monkeypatch.setattr(f"{package}.main.run", run)
    monkeypatch.setattr("kfext.runtime.configure_logs", lambda _: None)
    done = CliRunner().invoke(cli, [service, *arguments, "--probe-port", "1"])
    assert (done.exit_code, done.exception) == (0, None)
    (config,) = given
    assert (config.probe_port, getattr(config, field)) == (1, want)


def test_an_error_is_one_line_that_does_not_control_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(**_: Any) -> None:
        raise UserError("the API server says: \x1b[2Jno\x9b1A")

    monkeypatch.setattr("kfext.cli.main.cli", refused)
    monkeypatch.setattr("kfext.cli.main.accept_deep_json", lambda: None)  # it stays for all tests
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == "error: the API server says:  [2Jno 1A\n"
