"""The HyperSimplex loss in a LightningModule: the loss is a submodule, so a checkpoint holds its thresholds.

Needs `pip install lightning`. Run with `python examples/recipes/lightning_module.py`; a few seconds.
"""

import tempfile
from pathlib import Path

import lightning
import torch
from _digits import digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from hypersimplex.torch import HyperSimplexLoss


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.loss = HyperSimplexLoss(num_classes=10)

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        x, y = batch
        loss: Tensor = self.loss(self.model(x), y)
        return loss

    @torch.no_grad()
    def on_fit_end(self) -> None:
        batches = self.trainer.train_dataloader
        assert batches is not None
        self.loss.calibrate((self.model(x), y) for x, y in batches)  # the thresholds of the final weights

    def test_step(self, batch: tuple[Tensor, Tensor]) -> None:
        x, y = batch
        logits = self.model(x)
        self.log("plain argmax", (logits.argmax(1) == y).float().mean())
        self.log("predict", (self.loss.predict(logits) == y).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def run(epochs: int = 60) -> dict[str, float]:
    lightning.seed_everything(0, verbose=False)
    x, y, test_x, test_y = digits()
    trainer = lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=1,
    )  # fmt: skip
    classifier = Classifier()
    trainer.fit(classifier, DataLoader(TensorDataset(x, y), batch_size=600, shuffle=True))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.ckpt"
        trainer.save_checkpoint(path, weights_only=True)
        loaded = Classifier.load_from_checkpoint(path, weights_only=True)
    test = DataLoader(TensorDataset(test_x, test_y), batch_size=len(test_x))
    (result,) = trainer.test(classifier, test, verbose=False)
    (again,) = trainer.test(loaded, test, verbose=False)
    return {**result, "predict, from the checkpoint": again["predict"]}


def main() -> None:
    torch.set_num_threads(1)
    for name, accuracy in run().items():
        print(f"{name:30} {accuracy:.3f}")


if __name__ == "__main__":
    main()
