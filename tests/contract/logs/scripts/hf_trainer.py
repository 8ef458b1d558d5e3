"""Hugging Face's Trainer on a generated corpus: the same script for transformers 4 and 5."""
# mypy: ignore-errors

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.manual_seed(0)
numbers = (torch.arange(16) * 3 + torch.randint(0, 50, (400, 1))) % 50
rows = [{"input_ids": row, "labels": row} for row in numbers]
config = GPT2Config(vocab_size=50, n_positions=16, n_embd=32, n_layer=2, n_head=2)
arguments = TrainingArguments(
    output_dir="out",
    num_train_epochs=3,
    per_device_train_batch_size=8,
    logging_steps=15,
    eval_strategy="epoch",
    learning_rate=5e-3,
    use_cpu=True,
    report_to=[],
)
model = GPT2LMHeadModel(config)
Trainer(model, arguments, train_dataset=rows[:320], eval_dataset=rows[320:]).train()
