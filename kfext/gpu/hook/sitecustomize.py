"""Python imports this file at its start, because its folder is first on PYTHONPATH.

Then the next sitecustomize runs. No failure here may affect the job.
"""

import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder

_HERE = os.path.dirname(os.path.abspath(__file__))


def _run_next() -> None:
    """Run the sitecustomize hidden by this file, such as a distribution's, under its own name."""
    others = [path for path in sys.path if os.path.abspath(path or os.curdir) != _HERE]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = import_module("importlib.util").module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _report(text: str) -> None:
    try:
        sys.stderr.write(text)
    except Exception:
        return  # stderr is closed


try:
    # The next sitecustomize may import this file again, under the same name.
    if "kfext_hook.start" not in sys.modules:
        import kfext_hook.start

        kfext_hook.start.start()
except Exception as error:
    _report(f"kfext: this process does not give way on its GPU: {error!r}\n")
_run_next()
