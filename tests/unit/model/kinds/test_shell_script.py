"""Which commands a container runs, as far as its command line shows them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.model.kinds.shell_script import LONGEST, MOST_WORDS, Command, commands_of
from tests.unit.objects import Raw, json_values

Words = list[str]


def script(text: str) -> Raw:
    return {"command": ["sh", "-c", text]}


ONE: dict[str, tuple[Raw, Words]] = {
    "words": ({"command": ["run", "a b", "$X"]}, ["run", "a b", "$X"]),
    "words and arguments": ({"command": ["run"], "args": ["-a"]}, ["run", "-a"]),
    "arguments alone": ({"args": ["run", "-a"]}, ["run", "-a"]),
    "a script": (script("run -a"), ["run", "-a"]),
    "a login shell": ({"command": ["/bin/bash", "-lc", "run"]}, ["run"]),
    "options of the shell": (
        {"command": ["bash", "--login", "-eux", "-o", "pipefail", "-c", "run"]},
        ["run"],
    ),
    "a script among the arguments": (
        {"command": ["bash"], "args": ["-euo", "pipefail", "-c", "run"]},
        ["run"],
    ),
    "arguments of a script": ({"command": ["sh", "-c", "run -a", "name", "b"]}, ["run", "-a"]),
    "single quotes": (script("run 'a b' c'd'e"), ["run", "a b", "cde"]),
    "double quotes": (script(r'run "a \" b" "\x"'), ["run", 'a " b', r"\x"]),
    "an empty word": (script("run '' \"\""), ["run", "", ""]),
    "an escaped character": (script(r"run a\ b \; \#"), ["run", "a b", ";", "#"]),
    "a variable": (script("run $A ${B} ${C:-1} \"$D\" $@"), ["run", "$A", "${B}", "${C:-1}", "$D",
                                                             "$@"]),
    "several lines": (script("run \\\n  -a \\\n  -b\n"), ["run", "-a", "-b"]),
    "a word on two lines": (script("run --ab\\\ncd=1 \"e\\\nf\""), ["run", "--abcd=1", "ef"]),
    "a comment": (script("# first\nrun -a # second\n# third"), ["run", "-a"]),
    "a number sign in a word": (script("run a#b"), ["run", "a#b"]),
    "exec": (script("exec run"), ["run"]),
    "env": (script("/usr/bin/env A=b exec run"), ["run"]),
    "a word that is like a keyword": (script("run if"), ["run", "if"]),
}  # fmt: skip


@pytest.mark.parametrize(("container", "want"), ONE.values(), ids=ONE)
def test_one_command(container: Raw, want: Words) -> None:
    found = commands_of(container)
    assert found is not None
    assert [list(command.words) for command in found] == [want]


SEVERAL = {
    "after a directory": "cd /x && run",
    "with semicolons": "cd /x; run;",
    "with lines": "cd /x\n\n  run\n",
    "with a comment between": "cd /x # why\nrun",
    "with an and at the end of a line": "cd /x &&\nrun",
}


@pytest.mark.parametrize("text", SEVERAL.values(), ids=SEVERAL)
def test_commands_one_after_the_other(text: str) -> None:
    assert commands_of(script(text)) == (Command(("cd", "/x")), Command(("run",)))


VARIABLES = {
    "in front of a command": ("A=b C= run D=e", {"A", "C"}),
    "with env": ("env A=b run", {"A"}),
    "exported": ("export A=b C", {"A", "C"}),
    "removed": ("unset A C", {"A", "C"}),
    "set": ("A=b", {"A"}),
    "in quotes": ("A='b c' run", {"A"}),
}


@pytest.mark.parametrize(("text", "want"), VARIABLES.values(), ids=VARIABLES)
def test_variables_of_a_command(text: str, want: set[str]) -> None:
    found = commands_of(script(text))
    assert found is not None
    assert found[0].variables == want


UNKNOWN: dict[str, Raw] = {
    "no command line": {},
    "no words": {"command": [], "args": []},
    "a word that is no text": {"command": ["run", 3]},
    "too many words": {"command": ["run"] * (MOST_WORDS + 1)},
    "too long": {"command": ["run", "x" * LONGEST]},
    "a shell without a script": {"command": ["bash", "-l"]},
    "a shell with a file": {"command": ["bash", "run.sh"]},
    "an option of the shell that is not known": {"command": ["bash", "-O", "extglob", "-c", "run"]},
    "an option without its command": {"command": ["sh", "-c"]},
    **{
        what: script(text)
        for what, text in {
            "an empty script": " \n",
            "a comment": "# run",
            "a pipe": "run | tee log",
            "an alternative": "run || true",
            "something in the background": "run & other",
            "a redirection": "run > log 2>&1",
            "a here document": "run <<END\na\nEND",
            "a substitution": "run $(cat file)",
            "a substitution in quotes": 'run "$(cat file)"',
            "a substitution in backticks": "run `cat file`",
            "backticks in quotes": 'run "`cat file`"',
            "a variable that Kubernetes replaces": "run $(RANK)",
            "an expansion that sets a variable": "run ${A:=b}",
            "an expansion of an expansion": "run ${A:-$(b)}",
            "quotes with escapes": "run $'a\\n'",
            "an open quote": "run 'a",
            "another open quote": 'run "a',
            "a backslash at the end": "run \\",
            "a subshell": "(run)",
            "a group": "{ run; }",
            "a condition": "if a; then run; fi",
            "a loop": "for a in b; do run; done",
            "a negation": "! run",
            "a function": "run() { other; }; run",
            "an alias": "alias run=other\nrun",
            "an evaluation": "eval run",
            "an end before the end": "exit 0; run",
            "another program in its place": "exec other; run",
            "too many words in a script": "a " * (MOST_WORDS + 1),
        }.items()
    },
}


@pytest.mark.parametrize("container", UNKNOWN.values(), ids=UNKNOWN)
def test_what_cannot_be_said(container: Raw) -> None:
    assert commands_of(container) is None


PIECES = ["run", " ", "'", '"', "\\", "\n", "$", "{", "}", "A", "=", "&&", ";", "#", "`", "(", "|"]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=3)).map("".join))
def test_any_script_is_read_or_not(text: str) -> None:
    found = commands_of(script(text))
    assert found is None or all(isinstance(command, Command) for command in found)


@given(json_values, json_values)
def test_any_command_line_is_read_or_not(command: object, args: object) -> None:
    found = commands_of({"command": command, "args": args})
    assert found is None or found


@given(st.lists(st.text(max_size=6), min_size=1, max_size=5))
def test_quoted_words_are_found_again(words: Words) -> None:
    words = [word.replace("\x00", "") for word in words]
    quoted = ["'" + word.replace("'", "'\\''") + "'" for word in words]
    found = commands_of(script(" ".join(["run", *quoted])))
    assert found == (Command(("run", *words)),)
