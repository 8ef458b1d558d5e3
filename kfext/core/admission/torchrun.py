"""Whether a container starts torchrun so that the operator can set where its agents meet.

torchrun takes each option that its command line does not have from a variable PET_…, which the
operator sets. An option of its own would win, and the agents of a job would not meet.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kfext.core.admission.shell_script import Command, commands_of
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
_FLAGS = frozenset({"--module", "--no-python", "--run-path", "--virtual-local-rank"})
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
# What the operator sets for a job of a fixed size alone, or otherwise.
_READ = re.compile(r"\$[({]?(MASTER_ADDR|MASTER_PORT|RANK|WORLD_SIZE|PET_[A-Z_]+)\b")
_LONGEST_SHOWN = 40


def why_not_torchrun(container: Mapping[str, Any]) -> str:
    """Return why torchrun's agents in a container would not meet where the operator wants them to.

    Empty if they would: the last command of the container is torchrun, and nothing on its command
    line or in its variables sets a rendezvous or a number of agents. Never raises.
    """
    variables = (text(mapping(one).get("name")) for one in sequence(container.get("env")))
    if own := next((name for name in variables if name.startswith(_PET)), ""):
        return f"its container sets {_shown(own)} itself"
    commands = commands_of(container)
    if commands is None:
        return "its command line is empty or too involved for kfext to see what it starts"
    return next(filter(None, map(_bound_to_size, commands)), "") or _why_not(commands)


def _bound_to_size(command: Command) -> str:
    """Return by which variable a command is bound to a number of agents, empty if by none."""
    if own := min((name for name in command.variables if name.startswith(_PET)), default=""):
        return f"its command line sets {_shown(own)} itself"
    if used := next(filter(None, map(_READ.search, command.words)), None):
        return f"its command line uses {_shown(used[1])}, which depends on the number of pods"
    return ""


def _why_not(commands: Sequence[Command]) -> str:
    """Return why the last command is no torchrun that leaves the rendezvous to others."""
    *before, last = commands
    if any(_arguments(command) is not None for command in before):
        return "its command line starts torchrun more than once"
    arguments = _arguments(last)
    if arguments is None:
        started = last.words[0] if last.words else "nothing"
        return f"its command line starts {_shown(started)}, not torchrun"
    return _own_option(arguments)


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


def _own_option(arguments: Sequence[str]) -> str:
    """Return why the options of torchrun do not leave the rendezvous to others, empty if they do.

    What comes after the script are its own arguments.
    """
    rest = iter(arguments)
    for word in rest:
        if word.startswith("$"):
            return f"its command line gives torchrun {_shown(word)}, which may have any options"
        if not word.startswith("-"):
            return ""
        option, equals, _ = word.partition("=")
        found = set(_named(option))
        if own := found & _RENDEZVOUS:
            return f"its command line gives torchrun {min(own)} itself"
        if not found:
            return f"kfext does not know torchrun's option {_shown(option)}"
        attached = equals or (option not in _SHORT and not option.startswith("--"))
        if not attached and not found <= _FLAGS:
            next(rest, None)
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
