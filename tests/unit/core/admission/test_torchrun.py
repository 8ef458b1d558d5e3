"""Whether a container starts torchrun so that the operator can set where its agents meet."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfext.core.admission.torchrun import why_not_torchrun
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
    "beginnings of options": line("torchrun --nproc 2 --monitor 1 train.py --max-restarts 1"),
    "a number of processes from a variable": line("torchrun --nproc_per_node=$(GPUS) train.py"),
    "a directory from a variable": script("torchrun --nproc_per_node $GPUS a/$B.py $C"),
    "in a shell": script("cd /app && export OMP_NUM_THREADS=1 && exec torchrun train.py"),
    "after something else": script("pip install x\ntorchrun --nproc_per_node=1 \\\n  train.py"),
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
    "no command line": ({}, "empty or too involved"),
    "one that cannot be read": (script("torchrun x | tee log"), "empty or too involved"),
    "python": (line("python train.py"), "starts python, not torchrun"),
    "python with options": (line("python -u train.py"), "starts python, not torchrun"),
    "another module": (line("python -m torch.distributed.launch x"), "starts python"),
    "no module": (line("python -m"), "starts python"),
    "another launcher": (line("accelerate launch train.py"), "starts accelerate, not"),
    "a shell in a shell": (script("sh -c 'torchrun x'"), "starts sh, not torchrun"),
    "nothing but variables": (script("export A=b"), "starts export, not torchrun"),
    "no script": (line("torchrun --role x"), "gives torchrun no script"),
    "its own number of nodes": (line("torchrun --nnodes=2 x"), "gives torchrun --nnodes itself"),
    "its own rank": (line("torchrun --node_rank 0 x"), "gives torchrun --node-rank itself"),
    "its own address": (line("torchrun --master_addr h x"), "gives torchrun --master-addr itself"),
    "its own port": (line("torchrun --master-port 1 x"), "gives torchrun --master-port itself"),
    "its own end point": (line("torchrun --rdzv_endpoint=h x"), "torchrun --rdzv-endpoint itself"),
    "its own backend": (line("torchrun --rdzv-backend c10d x"), "torchrun --rdzv-backend itself"),
    "its own identity": (line("torchrun --rdzv_id 1 x"), "gives torchrun --rdzv-id itself"),
    "its own configuration": (line("torchrun --rdzv-conf a=b x"), "torchrun --rdzv-conf itself"),
    "one node": (line("torchrun --standalone x"), "gives torchrun --standalone itself"),
    "its own restarts": (line("torchrun --max_restarts=3 x"), "torchrun --max-restarts itself"),
    "behind another option": (line("torchrun --role x -m --nnodes 2 x"), "torchrun --nnodes"),
    "the beginning of an option": (line("torchrun --nn 2 x"), "gives torchrun --nnodes itself"),
    "an option from nowhere": (line("torchrun --new 2 x"), "does not know torchrun's option --new"),
    "a short one": (line("torchrun -x y"), "does not know torchrun's option -x"),
    "an end of options": (line("torchrun -- x"), "does not know torchrun's option --"),
    "options from a variable": (line("torchrun $(FLAGS) x"), "$(FLAGS), which may have any"),
    "an option from a variable": (script("torchrun --$A x"), "torchrun's option --$A"),
    "a variable of torchrun": (
        {**line("torchrun x"), "env": [{"name": "A"}, {"name": "PET_NNODES", "value": "2"}]},
        "its container sets PET_NNODES itself",
    ),
    "a variable of torchrun in a script": (script("PET_RDZV_ID=a torchrun x"), "sets PET_RDZV_ID"),
    "one that was exported before": (script("export PET_NNODES=1; torchrun x"), "sets PET_NNODES"),
    "a rank as an argument": (line("torchrun x --rank $(RANK)"), "uses RANK, which depends"),
    "a size in a script": (script('torchrun x "--n=${WORLD_SIZE:-1}"'), "uses WORLD_SIZE, which"),
    "an address before": (script("ping $MASTER_ADDR; torchrun x"), "uses MASTER_ADDR, which"),
    "two trainings": (script("torchrun a; torchrun b"), "starts torchrun more than once"),
    "a long command": (line("x" * 100), f"starts {'x' * 40}…, not torchrun"),
}  # fmt: skip


@pytest.mark.parametrize(("container", "want"), OTHERS.values(), ids=OTHERS)
def test_others_give_the_reason(container: Raw, want: str) -> None:
    assert want in why_not_torchrun(container)


OWN = ["--nnodes=2", "--rdzv_id=x", "--max_restarts=1", "--standalone", "--node-rank=0"]
OTHER = ["-m", "--nproc_per_node=2", "--no-python", "--role=a", "-r3", "--log-dir=x"]


@given(st.lists(st.sampled_from(OTHER)), st.sampled_from(OWN), st.lists(st.sampled_from(OTHER)))
def test_an_own_rendezvous_counts_wherever_it_is_before_the_script(
    before: list[str], own: str, after: list[str]
) -> None:
    assert why_not_torchrun({"command": ["torchrun", *before, *after, "x", own]}) == ""
    assert why_not_torchrun({"command": ["torchrun", *before, own, *after, "x"]})


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(["command", "args", "env"], json_values)))
def test_any_container_has_an_answer(container: Raw) -> None:
    assert why_not_torchrun(container)
