"""Measures how late a thread wakes after the end of work on a GPU, for both waits of the hook.

    python3 wakes.py HOOK

HOOK is the folder with the files of the hook. For each length of work it prints a line of JSON: the
length in ms, and for each kind of wait the delay from the end of the work until the thread runs, in
microseconds, as p50, p90 and p99. The last two lines have the costs of a gate, in microseconds: a
marker that is set and awaited on an idle GPU, and the Python code of an optimizer step.
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
    sys.path.insert(0, sys.argv[1])
    card = import_module("kfext_hook.device").Cuda(torch)
    torch.cuda.init()
    cycles = _cycles(card)
    for length in _LENGTHS:
        waits = {how: _delays(card, length, cycles, how == "polls") for how in ("blocks", "polls")}
        print(json.dumps({"ms": length, **waits}), flush=True)
    print(json.dumps({"gate_us": _mean_us(lambda: card.mark().wait())}))
    model = [torch.nn.Parameter(torch.zeros(8, device="cuda")) for _ in range(_PARAMETERS)]
    for parameter in model:
        parameter.grad = torch.zeros_like(parameter)
    print(json.dumps({"optimizer_us": _mean_us(torch.optim.SGD(model, 0.001).step)}))


def _cycles(card: Any) -> float:
    """Return the number of the card's clock cycles per millisecond."""
    torch.cuda._sleep(_CYCLES)
    torch.cuda.synchronize()
    begin = card.mark()
    torch.cuda._sleep(_CYCLES)
    end = card.mark()
    end.wait()
    return float(_CYCLES / (1000 * end.seconds_since(begin)))


def _delays(card: Any, length: float, cycles: float, polls: bool) -> list[float]:
    """Return the p50, p90 and p99 of the delays after work of `length` ms, in microseconds."""
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
    return [round(delays[int(quantile * _TIMES)], 1) for quantile in (0.5, 0.9, 0.99)]


def _mean_us(act: Callable[[], Any]) -> float:
    """Return the mean time of a call of `act`, in microseconds."""
    act()
    torch.cuda.synchronize()
    began = time.monotonic_ns()
    for _ in range(_TIMES):
        act()
    return round((time.monotonic_ns() - began) / 1e3 / _TIMES, 1)


if __name__ == "__main__":
    main()
