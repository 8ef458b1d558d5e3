"""Components for Kubeflow Pipelines that train in PyTorchJobs and TrainJobs."""
