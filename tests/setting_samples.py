"""A well-formed and a malformed value of every setting, for tests that must know all of them."""

from kfext import names

WELL_FORMED: dict[str, str] = {
    names.COLOCATION: "required",
    names.NETWORK: "host",
    names.ELASTIC: "2-8",
    names.RESIZE: "cpu",
    names.MIGRATE: "checkpointed",
    names.METRICS: "off",
    names.GPU_SHARE: "0.5",
    names.GPU_MEMORY: "8Gi",
    names.GPU_PRIORITY: "high",
    names.GPU_LOSS_BUDGET: "0.1",
    names.GPU_MIN_SHARE: "0",
}
"""Key -> a value that is not the default."""

MALFORMED: dict[str, str] = {
    names.COLOCATION: "requierd",
    names.NETWORK: "hots",
    names.ELASTIC: "8-2",
    names.RESIZE: "gpu",
    names.MIGRATE: "always",
    names.METRICS: "stdout:(",
    names.GPU_SHARE: "1.5",
    names.GPU_MEMORY: "much",
    names.GPU_PRIORITY: "highest",
    names.GPU_LOSS_BUDGET: "1",
    names.GPU_MIN_SHARE: "-0.1",
}
