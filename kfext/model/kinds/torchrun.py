"""The command line of torchrun in a container: the rendezvous of its agents, and their number.

If an option is not on its command line, torchrun reads it from a variable PET_…, which the operator
sets. An option on the command line prevails: with a different rendezvous the agents of a job would
not meet, and with a fixed number of agents no other number would train.
Source: torch/distributed/run.py, torch 2.13.

kfext reads two forms of a command line: the words of one command, and `sh -c` or `bash -c` with
plain commands that are joined by `&&` and end with torchrun. No other script is read.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kfext.model.tolerant import mapping, sequence, text

LONGEST = 16 * 1024
"""The most characters of a command line that kfext reads."""
MAX_PARTS = 64
"""The most parts of a script that kfext reads."""
_SHELLS = frozenset({"sh", "bash"})
_SCRIPT_FOLLOWS = re.compile(r"-[a-np-z]*c")  # not -o, which a value follows
_NOT_PLAIN = re.compile(r"[;|&<>()`\n]")
_ENDS_SCRIPT = frozenset({"eval", "exec", "exit"})
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_UNREAD = (
    "kfext cannot read its command line; let torchrun be the command, or the last part of "
    "sh -c 'A && torchrun …', or bring an elasticPolicy"
)
_MODULE = "torch.distributed.run"
_PYTHON = re.compile(r"python[0-9.]*")
_PYTHON_FLAGS = frozenset({"-B", "-E", "-I", "-O", "-OO", "-S", "-b", "-s", "-u"})
_PYTHON_OPTIONS = frozenset({"-W", "-X"})

_RENDEZVOUS = frozenset(
    {
        "--master-addr",
        "--master-port",
        "--max-restarts",
        "--nnodes",
        "--node-rank",
        "--rdzv-backend",
        "--rdzv-conf",
        "--rdzv-endpoint",
        "--rdzv-id",
        "--standalone",
    }
)
_FLAGS = frozenset(
    {"--module", "--no-python", "--run-path", "--standalone", "--virtual-local-rank"}
)
_OPTIONS = frozenset(
    {
        "--duplicate-stderr-filters",
        "--duplicate-stdout-filters",
        "--event-log-handler",
        "--local-addr",
        "--local-ranks-filter",
        "--log-dir",
        "--logs-specs",
        "--monitor-interval",
        "--nproc-per-node",
        "--numa-binding",
        "--redirects",
        "--role",
        "--signals-to-handle",
        "--start-method",
        "--tee",
    }
)
_KNOWN = _RENDEZVOUS | _FLAGS | _OPTIONS
_SHORT = {"-m": "--module", "-r": "--redirects", "-t": "--tee"}

_PET = "PET_"
_NNODES = "PET_NNODES"
# The variables that the operator sets differently, or only, for a job of a fixed size.
_FIXED_VARIABLES = "MASTER_ADDR|MASTER_PORT|RANK|WORLD_SIZE"
_USE_OF_VARIABLE = re.compile(rf"\$[({{]?({_FIXED_VARIABLES}|PET_[A-Z_]+)\b")
_USE_OF_FIXED_VARIABLE = re.compile(rf"\$[({{]?({_FIXED_VARIABLES})\b")
_FIXING_OPTIONS = frozenset({"--node-rank", "--standalone"})
_FIXING_VARIABLES = frozenset({"PET_NODE_RANK", "PET_STANDALONE"})
_FIXING_TEXT = re.compile(
    r"(?:--nn|--node[-_]r|--stand|\bPET_(?:NNODES|NODE_RANK|STANDALONE)=)\S*|\bstatic\b|"
    + _USE_OF_FIXED_VARIABLE.pattern
)
"""A text that binds a script that kfext cannot read to one number of workers."""
_VARIABLE = re.compile(r"\$(?:\((\w+)\)|\{(\w+)\}|(\w+))")
_SIZES = re.compile(r"([0-9]{1,5})(?::([0-9]{1,5}))?")
_COUNT = re.compile(r"[0-9]{1,5}")
_LONGEST_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Agents:
    """The agents of an elastic job by its command; for 0 and None the elasticPolicy decides.

    `fewest`, `most`: the bounds on their number.
    `restarts`: the number of times that each agent may restart its processes.
    """

    fewest: int = 0
    most: int = 0
    restarts: int | None = None


@dataclass(frozen=True, slots=True)
class _Command:
    """The words of a command, and the variables that are set in front of it or by it."""

    words: tuple[str, ...]
    variables: frozenset[str] = frozenset()


def agents_of(container: Mapping[str, Any]) -> Agents | str:
    """Return the agents of an elastic job, or why only the present number can meet. Never raises.

    If the container has no command, or kfext cannot read its script, the elasticPolicy applies,
    unless the script has a text that binds it to one number of workers.
    """
    line = _line(container)
    if not line:
        return Agents()
    commands = _commands(line)
    if commands is None:
        return _why_fixed_by_text(line, _values(container)) or Agents()
    options = _options_of(commands)
    if isinstance(options, str):
        return options
    return _agents_of_options(options, commands, container)


def _why_fixed_by_text(line: Sequence[Any], variables: Iterable[str]) -> str:
    """Return why a container with an unread script has a fixed number of workers; may be empty."""
    if own := min((name for name in variables if name.startswith(_PET)), default=""):
        return f"its container sets {_shown(own)}, and kfext cannot read its command line"
    if _length(line) > LONGEST:
        return "its command line is too long for kfext to read"
    script = " ".join(word for word in line if isinstance(word, str))
    if match := _FIXING_TEXT.search(script):
        return f"its command line has {_shown(match[0])} in a script that kfext cannot read"
    return ""


def _agents_of_options(
    options: Mapping[str, str], commands: Sequence[_Command], container: Mapping[str, Any]
) -> Agents | str:
    """Return the agents by torchrun's options and variables, or why no other number can meet."""
    # Variables of the script override the container's, and their values are unknown here.
    assigned = {name for command in commands for name in command.variables}
    values = _values(container) | dict.fromkeys(assigned)
    if reason := next(_why_fixed(commands, options, values), ""):
        return reason
    agents = _agents_of_nnodes(options.get("--nnodes", f"$({_NNODES})"), values)
    if isinstance(agents, Agents) and "--max-restarts" in options:
        restarts = _literal(options["--max-restarts"], values) or ""
        return replace(agents, restarts=int(restarts) if _COUNT.fullmatch(restarts) else 0)
    return agents


def _line(container: Mapping[str, Any]) -> list[Any]:
    return [*sequence(container.get("command")), *sequence(container.get("args"))]


def _length(line: Sequence[Any]) -> int:
    return sum(1 + len(word) for word in line if isinstance(word, str))


def _commands(line: Sequence[Any]) -> tuple[_Command, ...] | None:
    """Return the commands that a command line runs in sequence, or None for an unreadable line."""
    if not all(isinstance(word, str) for word in line) or _length(line) > LONGEST:
        return None
    if line[0].rpartition("/")[2] not in _SHELLS:
        return (_Command(tuple(line)),)
    if len(line) < 3 or not _SCRIPT_FOLLOWS.fullmatch(line[1]):
        return None
    return _split_script(line[2].replace("\\\n", " "))


def _split_script(script: str) -> tuple[_Command, ...] | None:
    """Return the plain commands that `&&` joins in a script, or None for any other script."""
    parts = [part.strip() for part in script.split("&&", MAX_PARTS)]
    if len(parts) > MAX_PARTS or any(map(_NOT_PLAIN.search, parts)):
        return None
    try:
        *before, last = (_command(shlex.split(part)) for part in parts)
    except ValueError:  # a quote without its end
        return None
    if any(command.words[0] in _ENDS_SCRIPT for command in before if command.words):
        return None
    return (*before, replace(last, words=last.words[last.words[:1] == ("exec",) :]))


def _command(words: Sequence[str]) -> _Command:
    """Return a command without the assignments before it."""
    others = (index for index, word in enumerate(words) if not _ASSIGNMENT.match(word))
    start = next(others, len(words))
    variables = {word.partition("=")[0] for word in words[:start]}
    if words[start : start + 1] in (["export"], ["declare"], ["readonly"], ["unset"]):
        variables.update(word.partition("=")[0] for word in words[start + 1 :])
    return _Command(tuple(words[start:]), frozenset(variables))


def _why_fixed(
    commands: Sequence[_Command], options: Mapping[str, str], variables: Iterable[str]
) -> Iterator[str]:
    """Yield the reasons, besides a number of agents, why only one number of workers can train."""
    for name in sorted(_FIXING_VARIABLES & set(variables)):
        yield f"its container sets {name}, which fixes the number of workers"
    for option in sorted(_FIXING_OPTIONS & options.keys()):
        yield f"its command line has the option {option}, which fixes the number of workers"
    if options.get("--rdzv-backend") == "static":
        yield "its command line has a static rendezvous, which fixes the number of workers"
    words = (word for command in commands for word in command.words)
    for used in filter(None, map(_USE_OF_FIXED_VARIABLE.search, words)):
        yield f"its command line uses {used[1]}, which fixes the number of workers"


def _agents_of_nnodes(word: str, values: Mapping[str, str | None]) -> Agents | str:
    """Return the agents that the option --nnodes allows, or why no other number can meet."""
    variable = _VARIABLE.fullmatch(word)
    if variable and _NNODES in variable.groups() and _NNODES not in values:
        return Agents()  # the operator sets it, as the elasticPolicy says
    sizes = _SIZES.fullmatch(_literal(word, values) or "")
    shown = f"its command line starts torchrun with --nnodes={_shown(word)}"
    if sizes is None:
        return f"{shown}, which kfext cannot read"
    fewest, most = int(sizes[1]), int(sizes[2] or sizes[1])
    if fewest >= most:
        return f"{shown}, so no other number of workers trains: leave that option out"
    return Agents(fewest, most)


def _values(container: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the variables of a container; None for a value that is not literal."""
    values: dict[str, str | None] = {}
    for variable in map(mapping, sequence(container.get("env"))):
        value = text(variable.get("value"))
        values[text(variable.get("name"))] = (
            None if "valueFrom" in variable or "$" in value else value
        )
    return values


def _literal(word: str, values: Mapping[str, str | None]) -> str | None:
    """Return a word or, for a variable, its value; None means that the value is unknown."""
    variable = _VARIABLE.fullmatch(word)
    return values.get(next(filter(None, variable.groups()))) if variable else word


def why_not_torchrun(container: Mapping[str, Any]) -> str:
    """Return why torchrun's agents in a container would not meet as the operator configures them.

    The reason is empty if they would: the last command of the container is torchrun, and neither
    its command line nor its variables set a rendezvous or a number of agents. Never raises.
    """
    variables = (text(mapping(variable).get("name")) for variable in sequence(container.get("env")))
    if own := next((name for name in variables if name.startswith(_PET)), ""):
        return f"its container sets {_shown(own)} itself"
    line = _line(container)
    commands = _commands(line) if line else ()
    if commands is None:
        return _UNREAD
    if reason := next(filter(None, map(_why_bound_to_size, commands)), ""):
        return reason
    options = _options_of(commands)
    if isinstance(options, str):
        return options
    own = min(options.keys() & _RENDEZVOUS, default="")
    return f"its command line sets torchrun's option {own} itself" if own else ""


def _why_bound_to_size(command: _Command) -> str:
    """Return the variable that binds a command to a number of agents, in words; may be empty."""
    if own := min((name for name in command.variables if name.startswith(_PET)), default=""):
        return f"its command line sets {_shown(own)} itself"
    if used := next(filter(None, map(_USE_OF_VARIABLE.search, command.words)), None):
        return f"its command line uses {_shown(used[1])}, which depends on the number of pods"
    return ""


def _options_of(commands: Sequence[_Command]) -> Mapping[str, str] | str:
    """Return the options of torchrun, the last of the commands, or why it is not torchrun."""
    if not commands:
        return "it has no command line: let torchrun be the command, or bring an elasticPolicy"
    *before, last = commands
    if any(_arguments(command) is not None for command in before):
        return "its command line starts torchrun more than once"
    arguments = _arguments(last)
    if arguments is None:
        started = last.words[0] if last.words else "nothing"
        return f"its command line starts {_shown(started)}, not torchrun"
    return _options(arguments)


def _arguments(command: _Command) -> Sequence[str] | None:
    """Return the arguments of torchrun, or None for a different command."""
    words = command.words
    started = words[0].rpartition("/")[2] if words else ""
    if started == "torchrun":
        return words[1:]
    if not _PYTHON.fullmatch(started):
        return None
    positions = iter(range(1, len(words)))
    for position in positions:
        if words[position] == "-m":
            module = words[position + 1 : position + 2]
            return words[position + 2 :] if module == (_MODULE,) else None
        if words[position] in _PYTHON_OPTIONS:
            next(positions, None)
        elif words[position] not in _PYTHON_FLAGS:
            return None
    return None


def _options(arguments: Sequence[str]) -> Mapping[str, str] | str:
    """Return the values of the options before the script, or why they are not all known.

    Arguments after the script are the script's. An abbreviation of several options counts as all.
    """
    options: dict[str, str] = {}
    remaining = iter(arguments)
    for word in remaining:
        if word.startswith("$"):
            return f"its command line passes {_shown(word)}, with unknown options, to torchrun"
        if not word.startswith("-"):
            return options
        option, equals, value = word.partition("=")
        names = set(_named(option))
        if not names:
            return f"kfext does not know torchrun's option {_shown(option)}"
        attached = equals or (option not in _SHORT and not option.startswith("--"))
        if not attached and not names <= _FLAGS:
            value = next(remaining, "")
        options |= dict.fromkeys(names, value)
    return "its command line names no script for torchrun"


def _named(option: str) -> Iterator[str]:
    """Yield the options that a word may stand for: argparse also accepts abbreviations."""
    if not option.startswith("--"):
        if option in _SHORT or (option[:2] in _SHORT and option[:2] != "-m"):
            yield _SHORT[option[:2]]
        return
    written = option.replace("_", "-")
    if written in _KNOWN:
        yield written
    elif len(written) > len("--"):
        yield from (known for known in _KNOWN if known.startswith(written))


def _shown(word: str) -> str:
    return word if len(word) <= _LONGEST_SHOWN else f"{word[:_LONGEST_SHOWN]}…"
