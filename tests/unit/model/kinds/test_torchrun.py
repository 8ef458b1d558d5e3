"""Whether a container starts torchrun in a way that lets the operator set the rendezvous."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.model.kinds.torchrun import LONGEST, MAX_PARTS, Agents, agents_of, why_not_torchrun
from tests.unit.objects import Raw, json_values


def line(text: str) -> Raw:
    return {"command": text.split()}


def script(text: str) -> Raw:
    return {"command": ["bash", "-c", text]}


TORCHRUN: dict[str, Raw] = {
    "torchrun": line("torchrun train.py"),
    "by its path": line("/usr/bin/torchrun train.py"),
    "as arguments of the image's entry point": {"args": ["torchrun", "train.py"]},
    "by its module": line("python -m torch.distributed.run train.py"),
    "by its module and version": line("/opt/bin/python3.11 -u -X dev -m torch.distributed.run x"),
    "with options that are not about the rendezvous": line(
        "torchrun --nproc-per-node 2 --monitor_interval=1 -r3 -t 3 --local-addr $(POD_IP) train.py"
    ),
    "a module": line("torchrun -m trainer.main --nnodes 2"),
    "a program": line("torchrun --no-python ./train"),
    "the options of the script are its own": line("torchrun train.py --nnodes 2 --rdzv_id x"),
    "abbreviated options": line("torchrun --nproc 2 --monitor 1 train.py --max-restarts 1"),
    "a number of processes from a variable": line("torchrun --nproc_per_node=$(GPUS) train.py"),
    "a directory from a variable": script("torchrun --nproc_per_node $GPUS a/$B.py $C"),
    "torchrun in a shell": script("cd /app && export OMP_NUM_THREADS=1 && exec torchrun train.py"),
    "after other commands": script("pip install x &&\n torchrun --nproc_per_node 1 \\\n t.py\n"),
    "in a login shell": {"command": ["/bin/sh", "-lc", "torchrun train.py"]},
    "a script among the arguments": {"command": ["bash"], "args": ["-ec", "torchrun train.py"]},
    "arguments of the script": {"command": ["sh", "-c", "torchrun train.py $@", "name", "b"]},
    "a variable before it": script("OMP_NUM_THREADS=1 torchrun train.py"),
    "quotes": script("echo 'a b' \"c\" && torchrun \"my train.py\" --x ''"),
    "a variable with a default": script('torchrun train.py ${A:-1} "$B"'),
    "variables that torchrun does not read": {
        **line("torchrun train.py"),
        "env": [{"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "RANKS"}],
    },
    "a variable with a longer name": line("torchrun train.py --x $(RANK_FILE)"),
}  # fmt: skip


@pytest.mark.parametrize("container", TORCHRUN.values(), ids=TORCHRUN)
def test_torchrun_with_the_rendezvous_of_the_operator(container: Raw) -> None:
    assert why_not_torchrun(container) == ""


OTHERS: dict[str, tuple[Raw, str]] = {
    "no command line": ({}, "no command line"),
    "no words": ({"command": [], "args": []}, "no command line"),
    "python": (line("python train.py"), "starts python, not torchrun"),
    "python with options": (line("python -u train.py"), "starts python, not torchrun"),
    "another module": (line("python -m torch.distributed.launch x"), "starts python"),
    "no module": (line("python -m"), "starts python"),
    "another launcher": (line("accelerate launch train.py"), "starts accelerate, not"),
    "a shell in a shell": (script("sh -c 'torchrun x'"), "starts sh, not torchrun"),
    "nothing but variables": (script("export A=b"), "starts export, not torchrun"),
    "nothing after the last &&": (script("a && "), "starts nothing, not torchrun"),
    "no script": (line("torchrun --role x"), "names no script for torchrun"),
    "its own number of nodes": (line("torchrun --nnodes=2 x"), "option --nnodes itself"),
    "its own rank": (line("torchrun --node_rank 0 x"), "option --node-rank itself"),
    "its own address": (line("torchrun --master_addr h x"), "option --master-addr itself"),
    "its own port": (line("torchrun --master-port 1 x"), "option --master-port itself"),
    "its own endpoint": (line("torchrun --rdzv_endpoint=h x"), "option --rdzv-endpoint itself"),
    "its own backend": (line("torchrun --rdzv-backend c10d x"), "option --rdzv-backend itself"),
    "its own rendezvous id": (line("torchrun --rdzv_id 1 x"), "option --rdzv-id itself"),
    "its own configuration": (line("torchrun --rdzv-conf a=b x"), "option --rdzv-conf itself"),
    "a standalone start": (line("torchrun --standalone x"), "option --standalone itself"),
    "its own restarts": (line("torchrun --max_restarts=3 x"), "option --max-restarts itself"),
    "behind another option": (line("torchrun --role x -m --nnodes 2 x"), "option --nnodes"),
    "an abbreviated option": (line("torchrun --nn 2 x"), "option --nnodes itself"),
    "an unknown option": (line("torchrun --new 2 x"), "does not know torchrun's option --new"),
    "a short option": (line("torchrun -x y"), "does not know torchrun's option -x"),
    "an end of options": (line("torchrun -- x"), "does not know torchrun's option --"),
    "options from a variable": (
        line("torchrun $(FLAGS) x"), "passes $(FLAGS), with unknown options, to torchrun"
    ),
    "an option from a variable": (script("torchrun --$A x"), "torchrun's option --$A"),
    "a variable of torchrun": (
        {**line("torchrun x"), "env": [{"name": "A"}, {"name": "PET_NNODES", "value": "2"}]},
        "its container sets PET_NNODES itself",
    ),
    "a variable of torchrun in a script": (script("PET_RDZV_ID=a torchrun x"), "sets PET_RDZV_ID"),
    "an exported variable": (script("export PET_NNODES=1 && torchrun x"), "sets PET_NNODES"),
    "a rank as an argument": (line("torchrun x --rank $(RANK)"), "uses RANK, which depends"),
    "a size in a script": (script('torchrun x "--n=${WORLD_SIZE:-1}"'), "uses WORLD_SIZE, which"),
    "an earlier address": (script("ping $MASTER_ADDR && torchrun x"), "uses MASTER_ADDR, which"),
    "torchrun twice": (script("torchrun a && torchrun b"), "starts torchrun more than once"),
    "a long command": (line("x" * 100), f"starts {'x' * 40}…, not torchrun"),
}  # fmt: skip


@pytest.mark.parametrize(("container", "want"), OTHERS.values(), ids=OTHERS)
def test_why_a_command_does_not_use_the_operators_rendezvous(container: Raw, want: str) -> None:
    assert want in why_not_torchrun(container)


UNREADABLE: dict[str, Raw] = {
    "a word that is not a string": {"command": ["torchrun", 3]},
    "too long": {"command": ["torchrun", "x" * LONGEST]},
    "too many parts": script("a && " * MAX_PARTS + "torchrun x"),
    "a shell without a script": {"command": ["bash", "-l"]},
    "a shell with a file": {"command": ["bash", "run.sh"]},
    "an option of the shell that takes a value": {
        "command": ["bash", "-euo", "pipefail", "-c", "torchrun x"]
    },
    "an option without its script": {"command": ["sh", "-c"]},
    **{
        what: script(text)
        for what, text in {
            "a semicolon": "cd /x; torchrun x",
            "several lines": "cd /x\ntorchrun x",
            "a pipe": "torchrun x | tee log",
            "an alternative": "a || torchrun x",
            "a command in the background": "a & torchrun x",
            "a redirection": "torchrun x > log",
            "a here document": "torchrun x <<END\na\nEND",
            "a substitution": "torchrun $(cat file) x",
            "a substitution in backticks": "torchrun `cat file` x",
            "a variable that Kubernetes replaces": "torchrun --nnodes=$(N) x",
            "an open quote": "torchrun 'a",
            "&& in quotes": "echo 'a && torchrun x'",
            "a subshell": "(cd /x && torchrun x)",
            "a condition": "if a; then torchrun x; fi",
            "an evaluation": "eval $X && torchrun x",
            "an early exit": "exit 0 && torchrun x",
            "exec of a different program": "exec other && torchrun x",
        }.items()
    },
}


@pytest.mark.parametrize("container", UNREADABLE.values(), ids=UNREADABLE)
def test_an_unreadable_command_needs_an_elastic_policy(container: Raw) -> None:
    assert "bring an elasticPolicy" in why_not_torchrun(container)


PIECES = [
    "torchrun",
    " ",
    "'",
    '"',
    "\\",
    "\n",
    "$",
    "{",
    "}",
    "A",
    "=",
    "&&",
    ";",
    "#",
    "`",
    "(",
    "|",
]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=3)).map("".join))
def test_any_script_is_read_or_found_unreadable(text: str) -> None:
    assert isinstance(why_not_torchrun(script(text)), str)
    assert isinstance(agents_of(script(text)), Agents | str)


@given(st.lists(st.text(max_size=6), min_size=1, max_size=5))
def test_quoted_words_reach_torchrun(words: list[str]) -> None:
    plain = [re.sub(r"[\x00;|&<>()`\n$]", "", word) for word in words]
    quoted = ["'" + word.replace("'", "'\\''") + "'" for word in ["torchrun", *plain, "--nnodes=2"]]
    assert why_not_torchrun(script(" ".join(quoted))) == why_not_torchrun(
        {"command": ["torchrun", *plain, "--nnodes=2"]}
    )


RENDEZVOUS = ["--nnodes=2", "--rdzv_id=x", "--max_restarts=1", "--standalone", "--node-rank=0"]
OTHER = ["-m", "--nproc_per_node=2", "--no-python", "--role=a", "-r3", "--log-dir=x"]


@given(
    st.lists(st.sampled_from(OTHER)), st.sampled_from(RENDEZVOUS), st.lists(st.sampled_from(OTHER))
)
def test_a_rendezvous_option_counts_only_before_the_script(
    before: list[str], own: str, after: list[str]
) -> None:
    assert why_not_torchrun({"command": ["torchrun", *before, *after, "x", own]}) == ""
    assert why_not_torchrun({"command": ["torchrun", *before, own, *after, "x"]})


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(["command", "args", "env"], json_values)))
def test_any_container_has_an_answer(container: Raw) -> None:
    assert why_not_torchrun(container)


def with_env(container: Raw, **values: str) -> Raw:
    return {**container, "env": [{"name": name, "value": value} for name, value in values.items()]}


AGENTS: dict[str, tuple[Raw, Agents]] = {
    "only the command of the image": ({}, Agents()),
    "torchrun": (line("torchrun t.py"), Agents()),
    "its module": (line("python -m torch.distributed.run t.py"), Agents()),
    "the end of a script": (script("pip install x && exec torchrun t.py"), Agents()),
    "a script that kfext cannot read": (script("torchrun t.py | tee log"), Agents()),
    "a script in a file": (line("bash run.sh"), Agents()),
    "a rendezvous of its own": (
        line("torchrun --rdzv-backend=etcd-v2 --rdzv-endpoint=$(PET_RDZV_ENDPOINT) t.py"),
        Agents(),
    ),
    "a range": (line("torchrun --nnodes=1:4 t.py"), Agents(1, 4)),
    "a range as a word of its own": (line("torchrun --nnodes 2:4 t.py"), Agents(2, 4)),
    "the operator's range": (line("torchrun --nnodes=$(PET_NNODES) t.py"), Agents()),
    "the operator's range in a script": (script("torchrun --nnodes=${PET_NNODES} t.py"), Agents()),
    "a range in a variable": (
        with_env(line("torchrun --nnodes=$(NODES) t.py"), NODES="1:8"),
        Agents(1, 8),
    ),
    "a number for the script": (line("torchrun t.py --nnodes=4"), Agents()),
    "its own restarts": (line("torchrun --max-restarts=3 t.py"), Agents(restarts=3)),
    "its own restarts in a variable": (
        with_env(line("torchrun --max_restarts $(TRIES) t.py"), TRIES="7"),
        Agents(restarts=7),
    ),
    "restarts that are not known": (line("torchrun --max-restarts=$(X) t.py"), Agents(restarts=0)),
    "processes of each agent": (line("torchrun --nproc-per-node=8 t.py"), Agents()),
}


@pytest.mark.parametrize(("container", "want"), AGENTS.values(), ids=AGENTS)
def test_the_numbers_of_agents_that_can_meet(container: Raw, want: Agents) -> None:
    assert agents_of(container) == want


FIXED: dict[str, tuple[Raw, str]] = {
    "a number": (line("torchrun --nnodes=4 t.py"), "with --nnodes=4, so no other"),
    "a number as a word of its own": (line("torchrun --nnodes 4 t.py"), "with --nnodes=4, so"),
    "an abbreviation of the option": (line("torchrun --nn=4 t.py"), "with --nnodes=4, so no other"),
    "a range of one size": (line("torchrun --nnodes=4:4 t.py"), "with --nnodes=4:4, so no other"),
    "a number to the module": (
        line("python3 -u -m torch.distributed.run --nnodes=4 t.py"),
        "with --nnodes=4, so",
    ),
    "a number in a script": (script("cd /a && torchrun --nnodes 4 t.py"), "with --nnodes=4, so"),
    "a number in a script that kfext cannot read": (
        script("cd /a; torchrun --nnodes 4 t.py"),
        "has --nnodes in a script that kfext cannot read",
    ),
    "a rank in an unreadable script": (
        script("torchrun --node_rank 0 t.py | tee x"),
        "has --node_rank in",
    ),
    "one node in an unreadable script": (
        script("cd /a; torchrun --standalone t.py"),
        "has --standalone in",
    ),
    "a static rendezvous in an unreadable script": (
        script("cd /a; torchrun --rdzv-backend static t.py"),
        "has static in",
    ),
    "the address of a master in an unreadable script": (
        script("ping $MASTER_ADDR; torchrun t.py"),
        "has $MASTER_ADDR in",
    ),
    "a variable set by an unreadable script": (
        script("export PET_NNODES=2; torchrun t.py"),
        "has PET_NNODES=2; in",
    ),
    "a variable of torchrun beside an unreadable script": (
        with_env(script("cd /a; torchrun t.py"), PET_NNODES="4"),
        "its container sets PET_NNODES",
    ),
    "a script that is too long": ({"command": ["sh", "-c", "x" * LONGEST]}, "is too long"),
    "a number as an argument of the image": (
        {"args": ["torchrun", "--nnodes=4", "t.py"]},
        "with --nnodes=4, so",
    ),
    "a number in a variable": (
        with_env(line("torchrun --nnodes=$(NODES) t.py"), NODES="4"),
        "with --nnodes=$(NODES), so no other",
    ),
    "a number in torchrun's variable": (
        with_env(line("torchrun t.py"), PET_NNODES="4"),
        "with --nnodes=$(PET_NNODES), so no other",
    ),
    "a missing variable": (line("torchrun --nnodes=$(N) t.py"), "kfext cannot read"),
    "a variable from elsewhere": (
        {**line("torchrun --nnodes=$(N) t.py"), "env": [{"name": "N", "valueFrom": {}}]},
        "which kfext cannot read",
    ),
    "a variable of a variable": (
        with_env(line("torchrun --nnodes=$(N) t.py"), N="$(M)", M="1:4"),
        "which kfext cannot read",
    ),
    "a number that the script sets": (
        script("export PET_NNODES=4 && torchrun t.py"),
        "which kfext cannot read",
    ),
    "a number that the script computes": (
        script("torchrun --nnodes=${PET_NNODES:-4} t.py"),
        "which kfext cannot read",
    ),
    "a rank": (line("torchrun --node_rank=$R t.py"), "option --node-rank, which fixes"),
    "a rank in a variable": (with_env(line("torchrun t.py"), PET_NODE_RANK="0"), "PET_NODE_RANK"),
    "one node": (line("torchrun --standalone t.py"), "option --standalone, which fixes"),
    "a static rendezvous": (line("torchrun --rdzv_backend=static t.py"), "a static rendezvous"),
    "the size of the world": (line("torchrun t.py --of $(WORLD_SIZE)"), "uses WORLD_SIZE"),
    "the address of a master": (script("ping $MASTER_ADDR && torchrun t.py"), "uses MASTER_ADDR"),
    "python": (line("python t.py"), "starts python, not torchrun"),
    "the launcher before torchrun": (
        line("python -m torch.distributed.launch --nnodes=4 t.py"),
        "starts python, not torchrun",
    ),
    "another launcher": (
        line("accelerate launch --num_machines 4 t.py"),
        "starts accelerate, not torchrun",
    ),
    "arguments of an unknown command": ({"args": ["--epochs", "3"]}, "starts --epochs, not"),
    "an unknown option": (line("torchrun --new=2 t.py"), "does not know torchrun's option --new"),
    "options from a variable": (line("torchrun $(FLAGS) t.py"), "with unknown options"),
}


@pytest.mark.parametrize(("container", "why"), FIXED.values(), ids=FIXED)
def test_why_only_the_present_number_of_agents_can_train(container: Raw, why: str) -> None:
    result = agents_of(container)
    assert isinstance(result, str)
    assert why in result


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(["command", "args", "env"], json_values)))
def test_any_container_is_read_without_an_error(container: Raw) -> None:
    assert isinstance(agents_of(container), Agents | str)
