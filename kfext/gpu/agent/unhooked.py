"""Why the activity of a pod on its card is unknown, in one word of `kfext.model.shared_gpu`."""

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
"""Most jobs begin to use their card within this many seconds; after that the pod is shown as
idle."""


class Unhooked:
    """Collects what the processes of one pod report of themselves, which may be wrong.

    A report from a process without a hook says nothing of processes with a hook.
    """

    def __init__(self) -> None:
        self._stated = 0
        self._came = False

    def hooked(self, process: Process) -> bool:
        """Return whether a new process has a hook; a process without one reports why, and goes."""
        reason = process[words.UNHOOKED]
        self._stated = reason or self._stated
        self._came = self._came or not reason
        return not reason

    def why(self, processes: Collection[Process], *, promised: float) -> str:
        """Return the reason; empty without a reason.

        `processes`: the live processes with a hook. `promised`: how many seconds ago the pod got
        its part.
        """
        failed = [process[words.UNHOOKED] for process in processes if process[words.UNHOOKED]]
        if failed or processes:
            return _WORDS.get(failed[0], "") if failed else ""
        if self._stated in _WORDS:
            return _WORDS[self._stated]
        return "" if self._came or promised < PATIENCE else NO_FRAMEWORK
