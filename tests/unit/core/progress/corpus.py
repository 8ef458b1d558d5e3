"""Short logs in the forms that frameworks print, with what is right to read in them.

Lines are made here; `source` names the public code or the run that has the form. Whole logs of runs
are in tests/contract/logs.
"""

from typing import NamedTuple


class Case(NamedTuple):
    """A log.

    `lines`: as printed, without line ends, the last one a second after the one before it.
    `position`, `total`: steps of the run after the last line, epochs if only these are counted; None
        if the lines do not tell.
    `measures`: name and last value of the measure of training, of any that may be followed; None if
        there is none. A name may be that which stands in the line or one with its words.
    `restarts`: how often the run went back.
    """

    name: str
    source: str
    lines: tuple[str, ...]
    position: int | None
    total: int | None
    measures: dict[str, float] | None
    restarts: int = 0


def _lines(text: str) -> tuple[str, ...]:
    return tuple(text.strip("\n").split("\n"))


DIFFUSERS = "diffusers examples/text_to_image/train_text_to_image.py: tqdm(desc='Steps')"
KOHYA = "kohya-ss/sd-scripts train_network.py: tqdm(desc='steps'), print(f'epoch {epoch+1}/{n}')"
SWIN = "microsoft/Swin-Transformer main.py, train_one_epoch; epochs and batches from 0"
DCGAN = "pytorch/examples dcgan/main.py; epochs and batches from 0"
PADDLESEG = "PaddlePaddle/PaddleSeg paddleseg/core/train.py; the iteration is of the run"
FLAIR = "flairNLP/flair flair/trainers/trainer.py"
LIGHTNING = "lightning TQDMProgressBar with self.log(on_step=True, on_epoch=True)"
TF_OD = "tensorflow/models research/object_detection/model_lib_v2.py"
LLAMA_FACTORY = "hiyouga/LLaMA-Factory src/llamafactory/train/callbacks.py, trainer_log.jsonl"
HF = "huggingface/transformers ProgressCallback, as tests/contract/logs/hf-trainer-*.log"
VLLM = "vllm-project/vllm gpu_model_runner.py: tqdm(desc='Capturing CUDA graph shapes')"
KERAS = "keras/src/utils/progbar.py, Model.fit and Model.evaluate"
IGNITE = "pytorch/ignite ProgressBar and examples"

PERCENT = (
    Case("a bar of diffusers", DIFFUSERS, _lines("""
Steps:  12%|█▏        | 60/500 [00:10<01:10,  6.2it/s, loss=0.31, lr=1e-5]
"""), 60, 500, {"loss": 0.31}),
    Case("a bar of diffusers that goes on", DIFFUSERS, _lines("""
Steps:   0%|          | 0/500 [00:00<?, ?it/s]
Steps:   0%|          | 1/500 [00:01<08:19,  1.00s/it, lr=1e-5, step_loss=0.0512]
Steps:   0%|          | 2/500 [00:02<08:18,  1.00s/it, lr=1e-5, step_loss=0.154]
"""), 2, 500, {"step_loss": 0.154}),
    Case("a bar of kohya below headings of epochs", KOHYA, _lines("""
epoch 1/10
steps:   6%|▌         | 60/1000 [01:00<15:40,  1.00s/it, avr_loss=0.112]
epoch 2/10
steps:  12%|█▏        | 120/1000 [02:00<14:40,  1.00s/it, avr_loss=0.101]
"""), 120, 1000, {"avr_loss": 0.101}),
    Case("a bar with thousands and a loss behind it", DIFFUSERS, _lines("""
Training:  25%|██▌       | 2500/10000 [10:00<30:00,  4.16it/s, train_loss=1.25]
"""), 2500, 10000, {"train_loss": 1.25}),
    Case("a bar whose title is a sentence", "tqdm.set_description", _lines("""
Train Loss 0.4123:  40%|████      | 40/100 [00:04<00:06, 10.0it/s]
Train Loss 0.4001:  50%|█████     | 50/100 [00:05<00:05, 10.0it/s]
"""), 50, 100, {"Train Loss": 0.4001}),
)

ENDS = (
    Case("total_steps beside step", "JSON lines of many scripts", _lines("""
{"step": 30, "total_steps": 900, "loss": 0.7}
"""), 30, 900, {"loss": 0.7}),
    Case("LLaMA-Factory", LLAMA_FACTORY, _lines("""
{"current_steps": 10, "total_steps": 300, "loss": 1.5, "lr": 5e-05, "epoch": 0.1, "percentage": 3.33, "elapsed_time": "0:00:10", "remaining_time": "0:04:50"}
{"current_steps": 20, "total_steps": 300, "loss": 1.2, "lr": 5e-05, "epoch": 0.2, "percentage": 6.67, "elapsed_time": "0:00:20", "remaining_time": "0:04:40"}
"""), 20, 300, {"loss": 1.2}),
    Case("max_steps beside step", "key=value loggers", _lines("""
global_step=40 max_steps=1000 train_loss=2.5
"""), 40, 1000, {"train_loss": 2.5}),
    Case("num_train_steps before step", "key: value loggers", _lines("""
num_train_steps: 2000, iter: 50, loss: 0.51
"""), 50, 2000, {"loss": 0.51}),
    Case("total_steps that counts what was done", "RL scripts", _lines("""
total_steps: 1000, loss: 0.5
total_steps: 2000, loss: 0.4
total_steps: 3000, loss: 0.3
"""), 3000, None, {"loss": 0.3}),
    Case("total_steps alone that never changes", "a setting beside a loss", _lines("""
total_steps: 1000, loss: 0.5
total_steps: 1000, loss: 0.4
"""), None, None, {"loss": 0.4}),
    Case("total_steps that grows with the step is no end", "RL scripts", _lines("""
{"step": 10, "total_steps": 100, "loss": 0.7}
{"step": 20, "total_steps": 200, "loss": 0.6}
"""), 20, None, {"loss": 0.6}),
    Case("steps_per_epoch", "key=value loggers", _lines("""
epoch=1 step=30 steps_per_epoch=100 loss=0.7
epoch=2 step=30 steps_per_epoch=100 loss=0.6
"""), 130, None, {"loss": 0.6}),
)

SUFFIXES = (
    Case("loss_step and loss_epoch", LIGHTNING, _lines("""
Epoch 2: 50%|#####     | 5/10 [00:01<00:01,  4.9it/s, loss_step=0.7, loss_epoch=0.8]
"""), None, None, {"loss_step": 0.7}),
    Case("train_loss_step from the first epoch on", LIGHTNING, _lines("""
Epoch 0: 100%|██████████| 10/10 [00:01<00:00,  9.9it/s, v_num=0, train_loss_step=0.9]
Epoch 1:  50%|█████     | 5/10 [00:01<00:01,  4.9it/s, v_num=0, train_loss_step=0.7, train_loss_epoch=0.85]
"""), 15, None, {"train_loss_step": 0.7}),
    Case("with measures of validation", LIGHTNING, _lines("""
Epoch 0: 100%|██████████| 10/10 [00:01<00:00,  9.9it/s, v_num=0, train/loss_step=0.900]
Validation DataLoader 0:  50%|█████     | 1/2 [00:00<00:00, 90.1it/s]
Epoch 1:  10%|█         | 1/10 [00:01<00:09,  1.0it/s, v_num=0, train/loss_step=0.8, val/loss_epoch=0.95, train/loss_epoch=0.9]
"""), 11, None, {"train/loss_step": 0.8}),
)

LATER = (
    Case("flair", FLAIR, _lines("""
2020-12-01 07:17:37,030 epoch 1 - iter 14/149 - loss 3.25525747 - samples/sec: 70.85 - lr: 0.100000
2020-12-01 07:17:38,030 epoch 1 - iter 28/149 - loss 0.3 - samples/sec: 70.85 - lr: 0.100000
2020-12-01 10:00:05,294 DEV : loss 0.9 - score 0.7958
"""), 28, None, {"loss": 0.3}),
    Case("flair in its second epoch", FLAIR, _lines("""
2020-12-01 07:17:37,030 epoch 1 - iter 149/149 - loss 3.25525747 - samples/sec: 70.85 - lr: 0.100000
2020-12-01 07:17:37,030 EPOCH 1 done: loss 8.4031 - lr 0.1000000
2020-12-01 07:18:34,294 DEV : loss 2.5814309120178223 - score 0.7958
2020-12-01 07:18:44,384 epoch 2 - iter 14/149 - loss 3.25525747 - samples/sec: 70.85 - lr: 0.100000
"""), 163, None, {"loss": 3.25525747}),
    Case("flair's test at the end", FLAIR, _lines("""
2020-12-01 07:17:38,030 epoch 1 - iter 28/149 - loss 0.3 - samples/sec: 70.85 - lr: 0.100000
2020-12-01 10:00:05,294 TEST : loss 0.8 - f1-score (micro avg)  0.7958
"""), 28, None, {"loss": 0.3}),
    Case("Keras evaluates with a bar of another length", KERAS, _lines("""
Epoch 1/2
40/40 [==============================] - 2s 3ms/step - loss: 0.70
Epoch 2/2
40/40 [==============================] - 2s 3ms/step - loss: 0.60
10/10 [==============================] - 0s 2ms/step - loss: 0.90
"""), 80, 80, {"loss": 0.60}),
    Case("the phase stands at the end", "JSON lines of mmengine and others", _lines("""
{"epoch": 1, "iter": 10, "loss": 0.3, "mode": "train"}
{"epoch": 1, "iter": 2, "loss": 0.9, "mode": "val"}
"""), 10, None, {"loss": 0.3}),
    Case("sections of one line", "ESPnet and Catalyst", _lines("""
epoch 3 results: [train] loss=1.014, acc=0.5, [valid] loss=1.559, acc=0.4
"""), None, None, {"loss": 1.014}),
    Case("a nested object", "JSON lines", _lines("""
{"step": 5, "train": {"loss": 0.4}, "val": {"loss": 0.6}}
"""), 5, None, {"loss": 0.4}),
    Case("an evaluation that announces itself", "PaddlePaddle hapi/callbacks.py", _lines("""
Epoch 1/2
step 10/20 - loss: 0.65 - 34ms/step
step 20/20 - loss: 0.60 - 34ms/step
Eval begin...
step 2/5 - loss: 0.9 - 4ms/step
step 5/5 - loss: 0.8 - 4ms/step
"""), 20, 40, {"loss": 0.60}),
    Case("a logger's level before the phase", "logging", _lines("""
INFO Train: step 10/100 loss 0.5
INFO Validation: step 3/5 loss 0.7
"""), 10, 100, {"loss": 0.5}),
)

PAIRS = (
    Case("Swin", SWIN, _lines("""
[2021-04-01 10:00:00 swin_tiny] (main.py 184): INFO Train: [0/20][85/90]\teta 0:01:00 lr 0.000001\ttime 0.4 (0.5)\tloss 6.9 (6.9)\tgrad_norm 1.2 (1.2)\tmem 9000MB
[2021-04-01 10:00:09 swin_tiny] (main.py 184): INFO Train: [1/20][5/90]\teta 0:01:00 lr 0.000001\ttime 0.4 (0.5)\tloss 6.7 (6.8)\tgrad_norm 1.2 (1.2)\tmem 9000MB
"""), 95, 1800, {"loss": 6.7}),
    Case("a pair alone", SWIN, _lines("""
[1/20][5/90] loss_a: 0.4
"""), 95, 1800, {"loss_a": 0.4}),
    Case("Swin with its validation between", SWIN, _lines("""
[2021-04-01 10:00:00 swin_tiny] (main.py 184): INFO Train: [0/20][80/90]\teta 0:01:00 lr 0.000001\tloss 6.9 (6.9)
[2021-04-01 10:00:05 swin_tiny] (main.py 238): INFO Test: [0/10]\tTime 0.5 (0.5)\tLoss 6.1 (6.1)\tAcc@1 1.0 (1.0)
[2021-04-01 10:00:09 swin_tiny] (main.py 184): INFO Train: [1/20][0/90]\teta 0:01:00 lr 0.000001\tloss 6.8 (6.8)
"""), 90, 1800, {"loss": 6.8}),
    Case("DCGAN", DCGAN, _lines("""
[0/25][1580/1583] Loss_D: 0.4512 Loss_G: 3.1 D(x): 0.91 D(G(z)): 0.12 / 0.05
[1/25][0/1583] Loss_D: 0.4112 Loss_G: 3.0 D(x): 0.91 D(G(z)): 0.12 / 0.05
"""), 1583, 39575, {"Loss_D": 0.4112, "Loss_G": 3.0}),
    Case("a pair whose last epoch has the number of all", "prints of epoch + 1", _lines("""
[20/20][5/90] loss: 0.4
"""), 1715, 1800, {"loss": 0.4}),
    Case("timm", "huggingface/pytorch-image-models train.py", _lines("""
Train: 0 [1250/1251 (100%)]  Loss: 6.9 (6.95)  Time: 0.5s
Train: 1 [  50/1251 (  4%)]  Loss: 6.5 (6.6)  Time: 0.5s
"""), 1301, None, {"Loss": 6.5}),
)

OVER_THE_RUN = (
    Case("PaddleSeg", PADDLESEG, _lines("""
2021-01-01 10:00:00 [INFO]\t[TRAIN] epoch: 1, iter: 40/100, loss: 0.9, lr: 0.01, batch_cost: 0.2, reader_cost: 0.01, ips: 5.1 samples/sec | ETA 00:00:12
2021-01-01 10:00:04 [INFO]\t[TRAIN] epoch: 2, iter: 60/100, loss: 0.8, lr: 0.01, batch_cost: 0.2, reader_cost: 0.01, ips: 5.1 samples/sec | ETA 00:00:08
"""), 60, 100, {"loss": 0.8}),
    Case("one line alone does not tell over what the iteration counts", PADDLESEG, _lines("""
[TRAIN] epoch: 3, iter: 40/100, loss: 0.9
"""), None, None, {"loss": 0.9}),
    Case("the same form within the epoch", "scripts that print steps_per_epoch", _lines("""
[TRAIN] epoch: 1, iter: 90/100, loss: 0.9, lr: 0.01
[TRAIN] epoch: 2, iter: 10/100, loss: 0.8, lr: 0.01
"""), 110, None, {"loss": 0.8}),
    Case("both ends, and the step goes on with the epoch", "scripts", _lines("""
Epoch 1/5, step 90/500, loss 0.9
Epoch 2/5, step 110/500, loss 0.8
"""), 110, 500, {"loss": 0.8}),
    Case("both ends, and the step begins anew", "yunjey/pytorch-tutorial", _lines("""
Epoch [1/5], Step [90/100], Loss: 0.9
Epoch [2/5], Step [10/100], Loss: 0.8
"""), 110, 500, {"Loss": 0.8}),
    Case("a bar over the run below headings", "scripts with tqdm(total=num_training_steps)", _lines("""
Epoch 1/5
 18%|█▊        | 90/500 [00:09<00:41, 10.0it/s, loss=0.9]
Epoch 2/5
 22%|██▏       | 110/500 [00:11<00:39, 10.0it/s, loss=0.8]
"""), 110, 500, {"loss": 0.8}),
    Case("a bar of each epoch below headings", "scripts with tqdm(loader)", _lines("""
Epoch 1/5
 90%|█████████ | 90/100 [00:09<00:01, 10.0it/s, loss=0.9]
Epoch 2/5
 10%|█         | 10/100 [00:01<00:09, 10.0it/s, loss=0.8]
"""), 110, 500, {"loss": 0.8}),
    Case("an epoch of unknown length", "PyTorch's tutorial cifar10", _lines("""
[1,  2000] loss: 2.2
[1, 12000] loss: 1.3
[2,  2000] loss: 1.2
"""), None, None, {"loss": 1.2}),
)

PARTS = (
    Case("total_loss after its parts", TF_OD, _lines("""
Loss/box_loss: 0.2, Loss/total_loss: 0.9
"""), None, None, {"Loss/total_loss": 0.9}),
    Case("TensorFlow's object detection", TF_OD, _lines("""
INFO:tensorflow:Step 100 per-step time 0.312s
INFO:tensorflow:{'Loss/classification_loss': 0.62, 'Loss/localization_loss': 0.1, 'Loss/total_loss': 0.72, 'learning_rate': 0.04}
"""), 100, None, {"Loss/total_loss": 0.72}),
    Case("the whole before its parts", "facebookresearch/detectron2", _lines("""
eta: 0:10:00  iter: 19  total_loss: 1.31  loss_cls: 0.62  loss_box_reg: 0.70  lr: 0.02
"""), 19, None, {"total_loss": 1.31}),
    Case("a bare loss among parts", "open-mmlab/mmdetection", _lines("""
10/01 10:00:00 - mmengine - INFO - Epoch(train)  [1][ 50/100]  lr: 1e-02  loss_cls: 0.3  loss_bbox: 0.4  loss: 0.7
"""), 50, None, {"loss": 0.7}),
    Case("parts without a whole", "a GAN", _lines("""
step 10 loss_g: 0.5 loss_d: 0.6
"""), 10, None, {"loss_g": 0.5, "loss_d": 0.6}),
)

THOUSANDS = (
    Case("of step and end", "prints with {step:,}", _lines("""
step 2,400/9,000 loss: 0.4
"""), 2400, 9000, {"loss": 0.4}),
    Case("of a million", "prints with {step:,}", _lines("""
Step 1,234,567 / 2,000,000 | Loss: 1.2345 | PPL: 3.4
"""), 1234567, 2000000, {"Loss": 1.2345}),
    Case("of the step alone", "prints with {step:,}", _lines("""
step: 12,500, loss: 0.4
"""), 12500, None, {"loss": 0.4}),
    Case("of a measure", "prints with {loss:,.2f}", _lines("""
step 10: loss 1,234.50
"""), 10, None, {"loss": 1234.5}),
    Case("a list is no number with thousands", "a pair of epoch and step", _lines("""
[1,200] loss: 0.4
"""), None, None, {"loss": 0.4}),
)

OTHER_BARS = (
    Case("graphs are captured", VLLM, _lines("""
Capturing graphs: 100%|██████████| 9/9 [00:03<00:00,  2.9it/s]
loss=0.4
"""), None, None, {"loss": 0.4}),
    Case("a model is loaded", "transformers from_pretrained", _lines("""
Loading checkpoint shards: 100%|██████████| 4/4 [00:05<00:00,  1.2s/it]
step 1 loss 2.5
loss 2.4
"""), 1, None, {"loss": 2.4}),
    Case("a bar without a title that is over", "tqdm(files)", _lines("""
100%|██████████| 9/9 [00:03<00:00,  2.9it/s]
loss=0.4
loss=0.3
"""), None, None, {"loss": 0.3}),
    Case("texts are tokenised during the training", "datasets Dataset.map", _lines("""
step 10/100 loss 2.5
Map:  50%|█████     | 500/1000 [00:00<00:00, 900.1 examples/s]
loss 2.4
"""), 10, 100, {"loss": 2.4}),
    Case("a download below the bar of the training", "huggingface_hub", _lines("""
Training:  10%|█         | 10/100 [00:01<00:09, 10.0it/s, loss=0.9]
model.safetensors:  45%|████▌     | 450M/1.00G [00:04<00:05, 100MB/s]
Training:  11%|█         | 11/100 [00:01<00:09, 10.0it/s, loss=0.8]
"""), 11, 100, {"loss": 0.8}),
    Case("images are sampled between steps", DIFFUSERS, _lines("""
Steps:  12%|█▏        | 60/500 [00:10<01:10,  6.2it/s, step_loss=0.31]
 40%|████      | 20/50 [00:02<00:03, 10.0it/s]
100%|██████████| 50/50 [00:05<00:00, 10.0it/s]
Steps:  12%|█▏        | 61/500 [00:16<01:10,  6.2it/s, step_loss=0.30]
"""), 61, 500, {"step_loss": 0.30}),
    Case("an evaluation's bar", IGNITE, _lines("""
Epoch [1/3]: [50/100]  50%|█████     , loss=0.9 [00:05<00:05]
Evaluating: 100%|██████████| 5/5 [00:00<00:00, 50.1it/s, loss=1.5]
"""), 50, 300, {"loss": 0.9}),
)

FLOATS = (
    Case("HF Trainer met at a whole epoch", HF, _lines("""
 67%|██████▋   | 60/90 [00:10<00:05,  6.0it/s]
{'loss': 0.41, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': 2.0}
"""), 60, 90, {"loss": 0.41}),
    Case("HF Trainer goes on", HF, _lines("""
 67%|██████▋   | 60/90 [00:10<00:05,  6.0it/s]
{'loss': 0.41, 'learning_rate': 1e-05, 'epoch': 2.0}
 72%|███████▏  | 65/90 [00:11<00:04,  6.0it/s]
{'loss': 0.39, 'learning_rate': 1e-05, 'epoch': 2.17}
"""), 65, 90, {"loss": 0.39}),
    Case("TRL with transformers 5", HF, _lines("""
 67%|██████▋   | 60/90 [00:10<00:05,  6.0it/s]
{'loss': '0.41', 'grad_norm': '1.0', 'num_tokens': '4096', 'mean_token_accuracy': '0.8', 'epoch': '2'}
"""), 60, 90, {"loss": 0.41}),
    Case("an evaluation between", HF, _lines("""
 33%|███▎      | 30/90 [00:10<00:20,  3.0it/s]
{'loss': 0.51, 'learning_rate': 1e-05, 'epoch': 1.0}
100%|██████████| 5/5 [00:00<00:00, 50.0it/s]
{'eval_loss': 0.7, 'eval_runtime': 0.1, 'epoch': 1.0}
 44%|████▍     | 40/90 [00:12<00:15,  3.0it/s]
{'loss': 0.45, 'learning_rate': 1e-05, 'epoch': 1.33}
"""), 40, 90, {"loss": 0.45}),
    Case("a float epoch alone", HF, _lines("""
{'loss': 0.41, 'epoch': 2.0}
{'loss': 0.40, 'epoch': 2.5}
"""), None, None, {"loss": 0.40}),
    Case("a float epoch beside a step", "JSON lines", _lines("""
{"step": 100, "epoch": 1.0, "loss": 0.5}
{"step": 110, "epoch": 1.1, "loss": 0.4}
"""), 110, None, {"loss": 0.4}),
)

SETTINGS = (
    Case("accumulation", "settings", _lines("""
grad_acc: 4
gradient_accumulation_steps = 4
acc_steps: 8, accumulate_grad_batches=2
"""), None, None, None),
    Case("schedules and thresholds", "settings", _lines("""
lr_schedule: 1, warmup_steps: 100, loss_scale: 65536.0, label_smoothing: 0.1
early_stopping_min_loss: 0.1, top_p: 0.9, top_k: 50, acc_threshold=0.5, reward_scale: 0.1
"""), None, None, None),
    Case("settings beside a loss", "settings", _lines("""
step 5, grad_acc: 4.0, loss_scale: 1024.0, loss: 0.5
"""), 5, None, {"loss": 0.5}),
)

NAMES = (
    Case("cross entropy at a batch", "Chainer and CNTK scripts", _lines("""
batch 5, CrossEntropy=0.4
"""), 5, None, {"CrossEntropy": 0.4}),
    Case("cross_entropy", "scripts", _lines("""
iter 7 cross_entropy: 1.25
"""), 7, None, {"cross_entropy": 1.25}),
    Case("a word error rate", "speech scripts", _lines("""
step: 40, word_error_rate: 0.31
"""), 40, None, {"word_error_rate": 0.31}),
    Case("a reward of an episode", "RL scripts", _lines("""
Episode 120/500, reward: 21.5
"""), 120, 500, {"reward": 21.5}),
    Case("a round of a federation", "scripts", _lines("""
round 3/10 loss 0.7
"""), 3, 10, {"loss": 0.7}),
    Case("bits per byte", "scripts", _lines("""
step 9 bpb: 1.1
"""), 9, None, {"bpb": 1.1}),
)

RESTARTS = (
    Case("back to a checkpoint", "scripts", _lines("""
step 90/100 loss 0.5
step 100/200 loss 0.5
step 60/200 loss 0.6
step 70/200 loss 0.6
"""), 70, 200, {"loss": 0.6}, 1),
    Case("back by an epoch", "scripts", _lines("""
Epoch [2/5], Step [50/100], Loss: 0.5
Epoch [1/5], Step [90/100], Loss: 0.7
"""), 90, 500, {"Loss": 0.7}, 1),
    Case("a count that begins anew at its end is the next epoch", "scripts", _lines("""
step 50/100 loss 0.5
step 100/100 loss 0.5
step 50/100 loss 0.4
"""), None, None, {"loss": 0.4}),
    Case("another rank that lags", "torchrun --log-line-prefix", _lines("""
[rank0]: step 10/100 loss 0.5
[rank1]: step 10/100 loss 0.6
[rank0]: step 20/100 loss 0.4
[rank1]: step 11/100 loss 0.7
"""), 20, 100, {"loss": 0.4}),
    Case("ranks of mpirun", "Horovod under mpirun --tag-output", _lines("""
[1,0]<stdout>:step 10 loss: 0.5
[1,3]<stdout>:step 9 loss: 0.6
"""), 10, None, {"loss": 0.5}),
)

CASES = (
    *PERCENT, *ENDS, *SUFFIXES, *LATER, *PAIRS, *OVER_THE_RUN, *PARTS, *THOUSANDS, *OTHER_BARS,
    *FLOATS, *SETTINGS, *NAMES, *RESTARTS,
)  # fmt: skip
