"""Why nothing is known of what a pod does on its card, in one word of `kfext.model.shared_gpu`."""

from collections.abc import Collection

from kfext.gpu.agent.process import Process
from kfext.gpu.hook import words
from kfext.model.shared_gpu import CALLBACK_LIST, HOOK_FAILED, NO_FRAMEWORK, OLD_TENSORFLOW

_WORDS = {
    words.FAILED: HOOK_FAILED,
    words.OLD_TENSORFLOW: OLD_TENSORFLOW,
    words.CALLBACK_LIST: CALLBACK_LIST,
}
PATIENCE = 60.0
"""Seconds in which a job begins to use its card, as a rule; then it is shown that it has not."""


class Unhooked:
    """Takes in what the processes of one pod state of themselves, which may be wrong.

    What a process states without a hook says nothing of those that have one.
    """

    def __init__(self) -> None:
        self._stated = 0
        self._came = False

    def hooked(self, process: Process) -> bool:
        """Return whether a process that comes has a hook; one without states why, and goes."""
        reason = process[words.UNHOOKED]
        self._stated = reason or self._stated
        self._came = self._came or not reason
        return not reason

    def why(self, processes: Collection[Process], *, promised: float) -> str:
        """Return the reason, empty if there is none.

        `processes`: those that came with a hook and live; `promised`: seconds for which the pod has
        had its part.
        """
        failed = [one[words.UNHOOKED] for one in processes if one[words.UNHOOKED]]
        if failed or processes:
            return _WORDS.get(failed[0], "") if failed else ""
        if self._stated in _WORDS:
            return _WORDS[self._stated]
        return "" if self._came or promised < PATIENCE else NO_FRAMEWORK
