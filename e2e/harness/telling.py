"""What a test changed, and the controller's news of it.

Jobs and pods come to the controller on watches of their own: without waiting, a job that is sent
after a policy, a node or a label was changed may be decided by what was before.
"""

from e2e.harness.kfext_process import Kfext
from e2e.harness.wait import until


def told(kfext: Kfext, path: str) -> None:
    """Wait until the controller, if it listens, is told what an object is by now."""
    version = int(kfext.kube.get(path)["metadata"]["resourceVersion"])
    streams = kfext.proxy.streams(path.split("/")[-2])
    until(
        lambda: all(one.version >= version or not one.open for one in streams),
        what=f"the controller is told of {path}",
    )


def delete_told(kfext: Kfext, path: str) -> None:
    """Delete an object; wait until the controller, if it listens, is told that it is gone."""
    streams = kfext.proxy.streams(path.split("/")[-2])
    uid = kfext.kube.get(path)["metadata"]["uid"]
    kfext.kube.delete(path)
    until(
        lambda: all(uid in one.gone or not one.open for one in streams),
        what=f"the controller is told that {path} is gone",
    )
