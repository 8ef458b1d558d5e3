"""How a container starts torchrun: where its agents meet, and how many.

torchrun takes each option that its command line does not have from a variable PET_…, which the
operator sets. An option of its own would win: with another rendezvous the agents of a job would not
meet, and with a fixed number of agents no other number would train.
Source: torch/distributed/run.py, torch 2.13.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kfext.model.kinds.shell_script import Command, commands_of
from kfext.model.tolerant import mapping, sequence, text

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
# What the operator sets for a job of a fixed size alone, or otherwise.
_OF_FIXED = "MASTER_ADDR|MASTER_PORT|RANK|WORLD_SIZE"
_READ = re.compile(rf"\$[({{]?({_OF_FIXED}|PET_[A-Z_]+)\b")
_READ_FIXED = re.compile(rf"\$[({{]?({_OF_FIXED})\b")
_FOR_ONE_SIZE = frozenset({"--node-rank", "--standalone"})
_FOR_ONE_SIZE_SET = frozenset({"PET_NODE_RANK", "PET_STANDALONE"})
_VARIABLE = re.compile(r"\$(?:\((\w+)\)|\{(\w+)\}|(\w+))")
_SIZES = re.compile(r"([0-9]{1,5})(?::([0-9]{1,5}))?")
_COUNT = re.compile(r"[0-9]{1,5}")
_LONGEST_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Agents:
    """What a command says of the agents of an elastic job; 0 and None: as its elasticPolicy says.

    `fewest`, `most`: how many may meet.
    `restarts`: how often each may restart its processes.
    """

    fewest: int = 0
    most: int = 0
    restarts: int | None = None


def agents_of(container: Mapping[str, Any]) -> Agents | str:
    """Return how many agents of an elastic job may meet, or why no other number than now can.

    A container that names no command leaves that to its image, and its elasticPolicy is believed.
    Never raises.
    """
    if not (sequence(container.get("command")) or sequence(container.get("args"))):
        return Agents()
    commands = commands_of(container) or ()
    options = _options_of(commands)
    if isinstance(options, str):
        return options
    # What the command line sets is not known; it comes before what the container has.
    written = {name for command in commands for name in command.variables}
    values = _values(container) | dict.fromkeys(written)
    if why := next(_for_one_size(commands, options, values), ""):
        return why
    found = _agents(options.get("--nnodes", f"$({_NNODES})"), values)
    if isinstance(found, Agents) and "--max-restarts" in options:
        restarts = _literal(options["--max-restarts"], values) or ""
        return replace(found, restarts=int(restarts) if _COUNT.fullmatch(restarts) else 0)
    return found


def _for_one_size(
    commands: Sequence[Command], options: Mapping[str, str], variables: Iterable[str]
) -> Iterator[str]:
    """Yield what, beside a number of agents, is of use with one number of workers alone."""
    for name in sorted(_FOR_ONE_SIZE_SET & set(variables)):
        yield f"its container sets {name}, which is for one number of workers"
    for option in sorted(_FOR_ONE_SIZE & options.keys()):
        yield f"its command line gives torchrun {option}, which is for one number of workers"
    if options.get("--rdzv-backend") == "static":
        yield "its command line gives torchrun a static rendezvous, which is for one size"
    words = (word for command in commands for word in command.words)
    for used in filter(None, map(_READ_FIXED.search, words)):
        yield f"its command line uses {used[1]}, which is for one number of workers"


def _agents(word: str, values: Mapping[str, str | None]) -> Agents | str:
    """Return how many agents meet by the option --nnodes, or why no other number can."""
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
    """Return the variables of a container; None for what is not written there as it is."""
    found: dict[str, str | None] = {}
    for one in map(mapping, sequence(container.get("env"))):
        value = text(one.get("value"))
        found[text(one.get("name"))] = None if "valueFrom" in one or "$" in value else value
    return found


def _literal(word: str, values: Mapping[str, str | None]) -> str | None:
    """Return a word, or the value of the variable that it is; None if that is not known."""
    variable = _VARIABLE.fullmatch(word)
    return values.get(next(filter(None, variable.groups()))) if variable else word


def why_not_torchrun(container: Mapping[str, Any]) -> str:
    """Return why torchrun's agents in a container would not meet where the operator wants them to.

    Empty if they would: the last command of the container is torchrun, and nothing on its command
    line or in its variables sets a rendezvous or a number of agents. Never raises.
    """
    variables = (text(mapping(one).get("name")) for one in sequence(container.get("env")))
    if own := next((name for name in variables if name.startswith(_PET)), ""):
        return f"its container sets {_shown(own)} itself"
    commands = commands_of(container) or ()
    if bound := next(filter(None, map(_bound_to_size, commands)), ""):
        return bound
    options = _options_of(commands)
    if isinstance(options, str):
        return options
    own = min(options.keys() & _RENDEZVOUS, default="")
    return f"its command line gives torchrun {own} itself" if own else ""


def _bound_to_size(command: Command) -> str:
    """Return by which variable a command is bound to a number of agents, empty if by none."""
    if own := min((name for name in command.variables if name.startswith(_PET)), default=""):
        return f"its command line sets {_shown(own)} itself"
    if used := next(filter(None, map(_READ.search, command.words)), None):
        return f"its command line uses {_shown(used[1])}, which depends on the number of pods"
    return ""


def _options_of(commands: Sequence[Command]) -> Mapping[str, str] | str:
    """Return the options of torchrun, the last of some commands, or why that is not torchrun."""
    if not commands:
        return "its command line is empty or too involved for kfext to see what it starts"
    *before, last = commands
    if any(_arguments(command) is not None for command in before):
        return "its command line starts torchrun more than once"
    arguments = _arguments(last)
    if arguments is None:
        started = last.words[0] if last.words else "nothing"
        return f"its command line starts {_shown(started)}, not torchrun"
    return _options(arguments)


def _arguments(command: Command) -> Sequence[str] | None:
    """Return the arguments of torchrun, None if the command is another."""
    words = command.words
    started = words[0].rpartition("/")[2] if words else ""
    if started == "torchrun":
        return words[1:]
    if not _PYTHON.fullmatch(started):
        return None
    rest = iter(range(1, len(words)))
    for at in rest:
        if words[at] == "-m":
            return words[at + 2 :] if words[at + 1 : at + 2] == (_MODULE,) else None
        if words[at] in _PYTHON_OPTIONS:
            next(rest, None)
        elif words[at] not in _PYTHON_FLAGS:
            return None
    return None


def _options(arguments: Sequence[str]) -> Mapping[str, str] | str:
    """Return the options before the script with their values, or why they are not all known.

    What comes after the script are its own arguments. A word that is the beginning of several
    options stands for each of them.
    """
    options: dict[str, str] = {}
    rest = iter(arguments)
    for word in rest:
        if word.startswith("$"):
            return f"its command line gives torchrun {_shown(word)}, which may have any options"
        if not word.startswith("-"):
            return options
        option, equals, value = word.partition("=")
        found = set(_named(option))
        if not found:
            return f"kfext does not know torchrun's option {_shown(option)}"
        attached = equals or (option not in _SHORT and not option.startswith("--"))
        if not attached and not found <= _FLAGS:
            value = next(rest, "")
        options |= dict.fromkeys(found, value)
    return "its command line gives torchrun no script"


def _named(option: str) -> Iterator[str]:
    """Yield the options that argparse may take a word for: it accepts their beginnings too."""
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
