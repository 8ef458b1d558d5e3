"""A TrainJob of the Kubeflow SDK, with a setting of kfext. It needs `pip install kubeflow`."""

from kubeflow.trainer import CustomTrainerContainer, TrainerClient
from kubeflow.trainer.options import Annotations, Name, TrainerCommand

client = TrainerClient()
name = client.train(
    trainer=CustomTrainerContainer(
        image="kfext-testbed/training:dev",
        num_nodes=2,
        resources_per_node={"cpu": "200m", "memory": "700Mi"},
    ),
    options=[
        Name("ddp-sdk"),
        TrainerCommand(["torchrun", "/jobs/train_ddp.py", "--model", "resnet", "--steps", "400"]),
        Annotations({"kfext.dev/colocation": "required"}),
    ],
)
# The SDK counts the time in the queue, and gives up after ten minutes by default.
client.wait_for_job_status(name, timeout=24 * 3600)
print(f"{name} is complete")
