"""The HyperSimplex loss as the Hugging Face Trainer's compute_loss_func.

Needs `pip install 'transformers[torch]'`. The model is a small BERT from its configuration, with random weights, so
nothing is downloaded: it learns which of four tokens occurs most often.
Run with `python examples/huggingface_trainer.py`.
"""

import tempfile
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification, EvalPrediction, Trainer, TrainingArguments

from hypersimplex.torch import HyperSimplexLoss

CLASSES, LENGTH = 4, 12


def sentences(count: int, seed: int) -> list[dict[str, Any]]:
    """Labels of uneven frequency; the label's token fills about half of the sentence."""
    rng = np.random.default_rng(seed)
    rows = []
    for label in rng.choice(CLASSES, size=count, p=[0.4, 0.3, 0.2, 0.1]):
        tokens = np.where(rng.random(LENGTH) < 0.5, label, rng.integers(CLASSES, size=LENGTH))
        rows.append({"input_ids": tokens.tolist(), "labels": int(label)})
    return rows


def run(epochs: int = 8) -> dict[str, float]:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=CLASSES, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=LENGTH, num_labels=CLASSES,
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    model.hypersimplex = HyperSimplexLoss(
        num_classes=CLASSES
    )  # inside the model: saved, moved and switched to eval with it

    def compute_loss(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        # num_items_in_batch is for losses that add up over batches; this one sees its batch as a whole.
        loss: Tensor = model.hypersimplex(outputs.logits, labels)
        return loss

    def metrics(prediction: EvalPrediction) -> dict[str, float]:
        logits, labels = torch.from_numpy(prediction.predictions), prediction.label_ids
        decided = model.hypersimplex.predict(logits).numpy()
        return {
            "plain": float((logits.argmax(1).numpy() == labels).mean()),
            "predict": float((decided == labels).mean()),
        }

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, num_train_epochs=epochs, per_device_train_batch_size=256, per_device_eval_batch_size=512,
            learning_rate=3e-3, use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True, seed=0,
            logging_strategy="no", dataloader_pin_memory=False,
        )  # fmt: skip
        trainer = Trainer(
            model, arguments, train_dataset=sentences(2048, 0), eval_dataset=sentences(512, 1),
            compute_loss_func=compute_loss, compute_metrics=metrics,
        )  # fmt: skip
        trainer.train()
        with torch.no_grad():  # the thresholds of the final weights
            model.eval()
            rows = trainer.get_train_dataloader()
            model.hypersimplex.calibrate((model(row["input_ids"]).logits, row["labels"]) for row in rows)
        found = trainer.evaluate()
    return {"plain argmax": found["eval_plain"], "predict": found["eval_predict"]}


if __name__ == "__main__":
    for name, accuracy in run().items():
        print(f"{name:14} {accuracy:.3f}")
