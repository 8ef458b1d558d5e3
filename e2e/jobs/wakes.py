"""The delay until a thread wakes at the end of work on a GPU, for both waits of the hook.

    python3 wakes.py HOOK

HOOK is the folder with the files of the hook. Prints a line of JSON for each length of work: its
milliseconds, and for each kind of wait the microseconds from the end on the card until the thread
runs, as p50, p90 and p99. The last lines have the costs of a gate: to set a marker and wait until
it is reached, and the Python code of an optimizer's step.
"""

import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

_TIMES = 200
_LENGTHS = (0.2, 0.65, 1.0, 3.0, 5.0)
_PARAMETERS = 120
_CYCLES = 10_000_000


def main() -> None:
    """Measure the delays and the costs."""
    sys.path.insert(0, sys.argv[1])
    card = import_module("kfext_hook.device").Cuda(torch)
    torch.cuda.init()
    cycles = _cycles(card)
    for length in _LENGTHS:
        waits = {how: _late(card, length, cycles, how == "polls") for how in ("blocks", "polls")}
        print(json.dumps({"ms": length, **waits}), flush=True)
    print(json.dumps({"gate_us": _took(lambda: card.mark().wait())}))
    model = [torch.nn.Parameter(torch.zeros(8, device="cuda")) for _ in range(_PARAMETERS)]
    for parameter in model:
        parameter.grad = torch.zeros_like(parameter)
    print(json.dumps({"optimizer_us": _took(torch.optim.SGD(model, 0.001).step)}))


def _cycles(card: Any) -> float:
    """Return the number of the card's cycles in a millisecond."""
    torch.cuda._sleep(_CYCLES)
    torch.cuda.synchronize()
    begin = card.mark()
    torch.cuda._sleep(_CYCLES)
    end = card.mark()
    end.wait()
    return float(_CYCLES / (1000 * end.seconds_since(begin)))


def _late(card: Any, length: float, cycles: float, polls: bool) -> list[float]:
    delays = []
    for _ in range(_TIMES):
        torch.cuda.synchronize()
        began = time.monotonic_ns()
        begin = card.mark()
        torch.cuda._sleep(int(length * cycles))
        end = card.mark()
        end.wait(began + int(length * 1e6) if polls else None)
        seen = time.monotonic_ns() - began
        delays.append(seen / 1e3 - 1e6 * end.seconds_since(begin))
    delays.sort()
    return [round(delays[int(part * _TIMES)], 1) for part in (0.5, 0.9, 0.99)]


def _took(act: Callable[[], Any]) -> float:
    """Return the mean microseconds that the calling thread needs for an action."""
    act()
    torch.cuda.synchronize()
    began = time.monotonic_ns()
    for _ in range(_TIMES):
        act()
    return round((time.monotonic_ns() - began) / 1e3 / _TIMES, 1)


if __name__ == "__main__":
    main()
