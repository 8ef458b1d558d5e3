"""Why the activity of a pod on its card is unknown: it may not give way, or others not to it."""

from collections.abc import Mapping

HOOK_FAILED = "HookFailed"
OLD_TENSORFLOW = "OldTensorFlow"
CALLBACK_LIST = "CallbackList"
NO_FRAMEWORK = "NoFramework"

UNHOOKED: Mapping[str, str] = {
    HOOK_FAILED: "its hook has failed, as its log says",
    OLD_TENSORFLOW: "TensorFlow is older than 2.6",
    CALLBACK_LIST: "Model.fit is given a CallbackList instead of a list",
    NO_FRAMEWORK: "none of its processes has used the GPU with PyTorch or Keras so far",
}
"""A sentence for each reason."""
