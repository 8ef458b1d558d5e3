"""The simple commands that a container runs, as far as its command line shows them.

A command line is either the words of one command, or a shell with a script (`sh -c`). Of scripts
only the plainest are understood: simple commands one after the other, of which the last one trains.
Whatever could run something else, or make words that cannot be seen here (substitutions, pipes,
redirections, conditions, loops), makes the whole unknown.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kfext.model.tolerant import sequence

LONGEST = 64 * 1024
"""Characters of a command line that is looked at."""
MOST_WORDS = 4096
_SHELLS = frozenset({"sh", "bash", "dash", "ash"})
_LONG_OPTIONS = frozenset({"--login", "--noprofile", "--norc"})
_CLUSTER = re.compile(r"-([a-z]+)")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_STARTERS = frozenset({"env", "exec"})
_SETTERS = frozenset({"declare", "export", "readonly", "typeset", "unset"})
# Words after which the rest of a script is not what it looks like.
_NOT_SIMPLE = frozenset(
    {
        "!",
        "[[",
        "case",
        "coproc",
        "do",
        "done",
        "elif",
        "else",
        "esac",
        "fi",
        "for",
        "function",
        "if",
        "in",
        "select",
        "then",
        "time",
        "until",
        "while",
        "{",
        "}",
        "alias",
        "eval",
        "exit",
        "return",
        "trap",
    }
)
_EXPANSION = r"""\$(?: \w++ | [@*] | \{\w++ (?: :?[-+] [^\s{}`$"'\\]*+ )? \} )"""
_TOKEN = re.compile(
    rf"""
    (?P<blank> [ \t]++ )
  | (?P<end> && | ; | \r?\n )
  | (?P<comment> \#[^\n]*+ )
  | (?P<word> (?:
        [^\s'"\\`$&;|<>()]++
      | \\.
      | '[^']*+'
      | "(?: [^"\\`$] | \\. | {_EXPANSION} )*+"
      | {_EXPANSION}
    )++ )
    """,
    re.VERBOSE | re.DOTALL,
)
_QUOTED = re.compile(r"""'([^']*+)'|"((?:[^"\\]|\\.)*+)"|\\(.)""", re.DOTALL)
_ESCAPED = re.compile(r"""\\([$`"\\\n])""")


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command.

    `words`: the command and its arguments without quotes; expansions are left as written.
    `variables`: the names of the variables that are set in front of it, or by it.
    """

    words: tuple[str, ...]
    variables: frozenset[str] = frozenset()


def commands_of(container: Mapping[str, Any]) -> tuple[Command, ...] | None:
    """Return the commands that a container runs one after the other, None if that is not known.

    If the image has an entry point and the container only `args`, it is taken to run these. Never
    raises.
    """
    line = [*sequence(container.get("command")), *sequence(container.get("args"))]
    if not 0 < len(line) <= MOST_WORDS or not all(isinstance(word, str) for word in line):
        return None
    if sum(map(len, line)) > LONGEST:
        return None
    if _base(line[0]) not in _SHELLS:
        return (_command(line),)
    script = _script(line[1:])
    return None if script is None else _simple_commands(script)


def _script(arguments: Iterable[str]) -> str | None:
    """Return the script among the arguments of a shell, None if there is none."""
    rest = iter(arguments)
    for option in rest:
        if option in _LONG_OPTIONS:
            continue
        cluster = _CLUSTER.fullmatch(option)
        if cluster is None:
            return None
        if "o" in cluster[1]:
            next(rest, None)  # the name of an option, such as pipefail
        if "c" in cluster[1]:
            return next(rest, None)
    return None


def _simple_commands(script: str) -> tuple[Command, ...] | None:
    """Return the commands of a script, None if there is anything else in it, or nothing."""
    lines: list[list[str]] = [[]]
    for token in _tokens(script):
        if token is None:
            return None
        kind, value = token
        if kind == "word":
            lines[-1].append(value)
        elif kind == "end" and lines[-1]:
            lines.append([])
    lines = [line for line in lines if line]
    if sum(map(len, lines)) > MOST_WORDS or any("exec" in line for line in lines[:-1]):
        return None
    commands = tuple(map(_command, lines))
    if any(command.words[:1] and command.words[0] in _NOT_SIMPLE for command in commands):
        return None
    return commands or None


def _tokens(script: str) -> Iterator[tuple[str | None, str] | None]:
    """Yield the kind and the value of each token, and None at the first that is not understood."""
    at = 0
    while at < len(script):
        match = _TOKEN.match(script, at)
        if match is None:
            yield None
            return
        at = match.end()
        value = _QUOTED.sub(_unquoted, match[0])
        # A backslash at the end of a line is no word.
        if value or "'" in match[0] or '"' in match[0]:
            yield match.lastgroup, value


def _unquoted(match: re.Match[str]) -> str:
    single, double, one = match.groups()
    if double is not None:
        return _ESCAPED.sub(lambda found: found[1].strip("\n"), double)
    return single if single is not None else one.strip("\n")


def _command(line: Sequence[str]) -> Command:
    """Return a command without what stands in front of it."""
    variables, start = set(), 0
    for word in line:
        if assignment := _ASSIGNMENT.match(word):
            variables.add(assignment[1])
        elif _base(word) not in _STARTERS:
            break
        start += 1
    words = tuple(line[start:])
    if words[:1] and words[0] in _SETTERS:
        variables.update(word.partition("=")[0] for word in words[1:])
    return Command(words, frozenset(variables))


def _base(word: str) -> str:
    return word.rpartition("/")[2]
