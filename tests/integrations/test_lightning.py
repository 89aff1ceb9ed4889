"""A real Lightning run: validation before training, thresholds that only training moves, checkpoints that hold them."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hypersimplex.torch import HyperSimplexLoss

lightning = pytest.importorskip("lightning")

# Lightning advises on workers and warns about its own dependencies; ours must still be seen.
pytestmark = pytest.mark.filterwarnings("ignore", "always:HyperSimplexLoss has no thresholds yet:UserWarning")


class Classifier(lightning.LightningModule):
    def __init__(self, **given):
        super().__init__()
        self.model, self.loss = nn.Linear(8, 3), HyperSimplexLoss(**given)
        self.seen = []

    def training_step(self, batch):
        return self.loss(self.model(batch[0]), batch[1])

    def validation_step(self, batch):
        self.loss.train()  # as with a criterion that is not a submodule: nobody calls its eval()
        before = self.loss.state_dict().get("samples", torch.zeros(1)).clone()
        self.log("validation", self.loss(self.model(batch[0]), batch[1]))
        self.loss.predict(self.model(batch[0]))
        after = self.loss.state_dict().get("samples", torch.zeros(1))
        self.seen.append((float(before), float(after)))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def loader(seed, size=96):
    x = torch.randn(size, 8, generator=torch.Generator().manual_seed(seed))
    return DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=32)


@pytest.mark.parametrize("given", [{}, {"num_classes": 3}])
def test_fit_with_sanity_validation_and_a_checkpoint(given, tmp_path):
    lightning.seed_everything(0, verbose=False)
    classifier = Classifier(**given)
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path, num_sanity_val_steps=2,
    )  # fmt: skip
    with pytest.warns(UserWarning, match="has no thresholds yet and decides by zeros"):
        trainer.fit(classifier, loader(0), loader(1))
    assert len(classifier.seen) == 2 + 2 * 3
    assert all(before == after for before, after in classifier.seen), "validation moved the thresholds"
    assert classifier.loss.samples == 2 * 96
    saved = Classifier.load_from_checkpoint(trainer.checkpoint_callback.best_model_path, **given)
    x = torch.randn(20, 8)
    assert torch.equal(saved.loss.predict(saved.model(x)), classifier.loss.predict(classifier.model(x)))
    for name, value in classifier.loss.state_dict().items():
        assert torch.equal(saved.loss.state_dict()[name], value), name
