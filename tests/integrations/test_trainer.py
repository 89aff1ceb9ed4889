"""A real run of the Hugging Face Trainer: evaluation moves nothing, checkpoints hold the thresholds, a run resumes."""

import pytest
import torch

from hypersimplex.torch import HyperSimplexLoss, hypersimplex_loss

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

# transformers warns about its own dependencies.
pytestmark = pytest.mark.filterwarnings("ignore")


def sentences(count, seed):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(3, (count, 6), generator=generator)
    return [{"input_ids": row.tolist(), "labels": int(row.mode().values)} for row in tokens]


def build():
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=3, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=6, num_labels=3,
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config)
    model.criterion = HyperSimplexLoss(num_classes=3)
    return model


def trainer_of(model, folder, epochs, moves):
    def compute_loss(outputs, labels, num_items_in_batch=None):
        before = float(model.criterion.samples)
        model.criterion.train()
        loss = model.criterion(outputs.logits, labels)
        moves.append((outputs.logits.requires_grad, float(model.criterion.samples) - before))
        return loss

    return build_trainer(transformers.Trainer, model, folder, epochs, compute_loss_func=compute_loss)


def build_trainer(kind, model, folder, epochs, **given):
    arguments = transformers.TrainingArguments(
        str(folder), num_train_epochs=epochs, per_device_train_batch_size=32, per_device_eval_batch_size=64,
        use_cpu=True, report_to=[], disable_tqdm=True, seed=0, logging_strategy="no", save_strategy="epoch",
        eval_strategy="epoch", dataloader_pin_memory=False,
    )  # fmt: skip
    return kind(model, arguments, train_dataset=sentences(64, 0), eval_dataset=sentences(64, 1), **given)


def test_training_evaluation_and_a_checkpoint(tmp_path):
    model, moves = build(), []
    trainer_of(model, tmp_path, 2, moves).train()
    assert (False, 0.0) in moves, "evaluation computed the loss"
    assert all(moved == (32 if differentiable else 0) for differentiable, moved in moves)
    assert model.criterion.samples == 128
    folder = sorted(tmp_path.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))[-1]
    resumed = build()
    trainer_of(resumed, tmp_path, 3, []).train(resume_from_checkpoint=str(folder))
    assert resumed.criterion.samples == 192, "128 from the checkpoint and an epoch more"


class OwnLoss(transformers.Trainer):
    """The common way: the criterion is no part of the model, so that nobody ever sets it to evaluation."""

    criterion = None

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = self.criterion(outputs.logits, labels)
        return (loss, outputs) if return_outputs else loss


def test_a_trainer_with_its_own_compute_loss(tmp_path):
    trainer = build_trainer(OwnLoss, build(), tmp_path, 2)
    trainer.criterion = HyperSimplexLoss(num_classes=3)
    trainer.train()
    assert trainer.criterion.samples == 128, "two epochs of 64 samples; evaluation after each moved nothing"
    before = trainer.criterion.threshold.clone()
    found = trainer.predict(sentences(64, 1))
    assert torch.equal(trainer.criterion.threshold, before)
    logits, labels = torch.tensor(found.predictions), torch.tensor(found.label_ids)
    expected = hypersimplex_loss(logits, labels)
    torch.testing.assert_close(found.metrics["test_loss"], float(expected), rtol=1e-5, atol=1e-6)
    assert trainer.criterion.predict(logits).shape == labels.shape


class Classifier(transformers.BertForSequenceClassification):
    def __init__(self, config):
        super().__init__(config)
        self.criterion = HyperSimplexLoss(num_classes=config.num_labels)


def test_from_pretrained_of_a_checkpoint_without_and_with_thresholds(tmp_path):
    config = build().config
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path / "base")
    model = Classifier.from_pretrained(tmp_path / "base")
    expected = HyperSimplexLoss(num_classes=3).state_dict()
    torch.testing.assert_close(dict(model.criterion.state_dict()), dict(expected))
    model.train().criterion(torch.eye(3).repeat(4, 1).requires_grad_(), torch.arange(3).repeat(4))
    model.save_pretrained(tmp_path / "trained")
    loaded = Classifier.from_pretrained(tmp_path / "trained")
    assert loaded.criterion.samples == 12
    torch.testing.assert_close(dict(loaded.criterion.state_dict()), dict(model.criterion.state_dict()))
