"""HyperSimplexLoss decides by its thresholds, and keeps them when it is saved, copied or converted."""

import copy
import pickle

import pytest
import torch
from torch import nn

from hypersimplex.torch import HyperSimplexLoss, threshold
from tests.torch.losses import DOUBLE, labels_of, leaf, normal, one_hot, same, using


def batches(count=12, n=40, classes=4):
    return [(leaf(n, classes, seed=i) + i, labels_of(n, classes=classes, seed=i)) for i in range(count)]


def thresholds(logits, target, classes=4, tau=1.0):
    return threshold(logits.detach(), one_hot(target, classes).sum(0), tau, dim=0)


@pytest.mark.parametrize("tau", [1.0, 2.0, [0.5, 1.0, 2.0, 4.0]])
def test_scores_and_classes(tau):
    criterion = HyperSimplexLoss(tau=tau)
    logits, target = batches(1)[0]
    criterion(logits, target)
    mu = thresholds(logits, target, tau=torch.as_tensor(tau, dtype=DOUBLE))
    expected = (logits - mu) / torch.as_tensor(tau, dtype=DOUBLE)
    same(criterion.scores(logits), expected)
    same(criterion.scores(logits[0]), expected[0])
    assert torch.equal(criterion.predict(logits), expected.argmax(1))
    assert torch.equal(criterion.predict(logits[0]), expected[0].argmax())
    spread = logits.reshape(5, 8, 4).movedim(-1, 1)
    assert torch.equal(criterion.predict(spread), expected.argmax(1).reshape(5, 8))


def test_binary_decision():
    criterion = HyperSimplexLoss(tau=2.0)
    logits, target = leaf(50), labels_of(50, classes=2)
    criterion(logits, target)
    expected = ((logits - threshold(logits, target.sum(), 2.0)) / 2 > 0.5).long()
    assert 0 < expected.sum() < 50
    assert torch.equal(criterion.predict(logits), expected)
    assert torch.equal(criterion.predict(logits[:, None]), expected[:, None])
    assert criterion.predict(logits[7]) == expected[7]


def test_a_score_of_one_half_is_negative():
    criterion = HyperSimplexLoss(num_classes=1)
    criterion(leaf(50), labels_of(50, classes=2))
    criterion.threshold.fill_(0.25)
    around = [torch.nextafter(torch.tensor(0.75), torch.tensor(end)).item() for end in (0.0, 1.0)]
    assert criterion.predict(torch.tensor([around[0], 0.75, around[1]])).tolist() == [0, 0, 1]


def log_likelihood(criterion, factor, logits, target):
    """Of the labels, where the scores are multiplied by that factor; independent labels are decided at one half."""
    scores = criterion.scores(logits).double()
    if target.shape == logits.shape:
        return -nn.functional.binary_cross_entropy_with_logits(factor * (scores - 0.5), target.double())
    return -nn.functional.cross_entropy(factor * scores, target)


@pytest.mark.parametrize("kind", ["classes", "binary", "multilabel"])
def test_the_sharpness_is_the_most_likely_one(kind):
    """Labels that are often wrong, and thresholds far from the middle: the factor is neither 0 nor infinite."""
    logits = normal(400) if kind == "binary" else normal(400, 3)
    noise = normal(*logits.shape, seed=3)
    target = (logits + noise).argmax(1) if kind == "classes" else (logits + noise > 1.0).double()
    criterion = HyperSimplexLoss().calibrate([(logits, target)])
    best = float(criterion.sharpness)
    at_best, *others = (log_likelihood(criterion, f * best, logits, target) for f in (1.0, 0.99, 1.01))
    assert 0.5 < best < 8
    assert at_best > max(others)
    expected = torch.sigmoid(best * (criterion.scores(logits) - 0.5))
    if kind == "classes":
        expected = torch.softmax(best * criterion.scores(logits), 1)
    same(criterion.probabilities(logits), expected)


@pytest.mark.parametrize("labels", ["any number", "one or none", "one or two"])
@pytest.mark.parametrize("way", ["train", "calibrate"])
def test_multilabel_decision(way, labels):
    criterion, logits = HyperSimplexLoss(), leaf(50, 3)
    if labels == "any number":
        target = (normal(50, 3, seed=1) > 0).float()
    else:
        target = one_hot(labels_of(50, classes=3), 3).float()
        target[::3] *= 0 if labels == "one or none" else 1
        target[1::3, 0] = 1 if labels == "one or two" else target[1::3, 0]
    if way == "train":
        criterion(logits, target)
    else:
        criterion.calibrate([(logits, target)])
    expected = (logits - threshold(logits, target.double().sum(0), dim=0) > 0.5).long()
    assert torch.equal(criterion.predict(logits), expected)
    assert torch.equal(criterion.predict(logits[0]), expected[0])


def test_soft_labels_are_still_one_class():
    criterion, (logits, target) = HyperSimplexLoss(), batches(1)[0]
    criterion(logits, one_hot(target, 4) * 0.9 + 0.1 / 4)
    assert criterion.predict(logits).shape == target.shape


def test_state_dict_round_trip():
    criterion, weight = HyperSimplexLoss(torch.ones(4), tau=torch.tensor(2.0)), torch.ones(4)
    for batch in batches():
        criterion(*batch)
    fresh = HyperSimplexLoss(weight, tau=torch.tensor(1.0))
    assert (
        str(fresh.load_state_dict(copy.deepcopy(criterion.state_dict()), strict=True))
        == "<All keys matched successfully>"
    )
    logits = batches(1)[0][0]
    assert torch.equal(fresh.predict(logits), criterion.predict(logits))
    batch = batches(13)[12]
    fresh(*batch), criterion(*batch)
    for name, value in criterion.state_dict().items():
        assert torch.equal(fresh.state_dict()[name], value), name


def test_saved_inside_a_model_and_on_disk(tmp_path):
    def model():
        return nn.ModuleDict({"net": nn.Linear(3, 4).double(), "loss": HyperSimplexLoss()})

    trained = model()
    trained["loss"](trained["net"](leaf(40, 3)), labels_of(40, classes=4))
    torch.save(trained.state_dict(), tmp_path / "model.pt")
    fresh = model()
    fresh.load_state_dict(torch.load(tmp_path / "model.pt"), strict=True)
    assert torch.equal(fresh["loss"].threshold, trained["loss"].threshold)
    assert fresh["loss"].threshold.any()


@pytest.mark.parametrize("way", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_copies_stand_alone(way):
    criterion = HyperSimplexLoss(tau=nn.Parameter(torch.tensor(2.0)), prior=0.25)
    criterion(*batches(1)[0])
    copied = way(criterion)
    before = criterion.threshold.clone()
    same(copied.threshold, before)
    copied(*batches(2)[1])
    assert torch.equal(criterion.threshold, before)
    assert not torch.equal(copied.threshold, before)
    same(copied(*batches(1)[0]), criterion(*batches(1)[0]))


def test_half_keeps_every_digit():
    weight, k = torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([7.001, 8, 9, 10])
    criterion = HyperSimplexLoss(weight, k=k)
    criterion(leaf(40, 4, dtype=torch.float32) + 1000.123, labels_of(40, classes=4))
    before = criterion.threshold.clone()
    for kind in (torch.float16, torch.bfloat16):
        criterion.to(kind)
        assert torch.equal(criterion.threshold, before)
        assert torch.equal(criterion.k, k)
        assert torch.equal(criterion.weight, weight)
    assert criterion.double().threshold.dtype == DOUBLE
    assert criterion.to("meta").threshold.device.type == "meta"


def test_double_logits_have_double_thresholds():
    criterion, batch = HyperSimplexLoss(), batches(1)[0]
    criterion(*batch)
    torch.testing.assert_close(criterion.threshold, thresholds(*batch), rtol=1e-14, atol=1e-14)


def test_half_scores_are_decided_in_full_precision():
    """At 1000, float16 steps by one half: the scores must not be rounded before they are compared."""
    criterion = HyperSimplexLoss()
    criterion(torch.tensor([[0.0, 0.0], [1.0, 1.0]], requires_grad=True), torch.tensor([0, 1]))
    criterion.threshold.copy_(torch.tensor([-1000.1, -1000.2]))
    logits = torch.zeros(1, 2, dtype=torch.float16)
    assert criterion.predict(logits).tolist() == [1]
    assert criterion.scores(logits).dtype == torch.float16


def test_training_goes_on_after_inference_mode():
    criterion, (first, second) = HyperSimplexLoss(momentum=0.0), batches(2)
    with torch.inference_mode():
        criterion.calibrate([first])
    criterion(*second)
    with using("composed"):
        criterion(*second)
    same(criterion.threshold, (thresholds(*first) + 2 * thresholds(*second)) / 3)


def test_repr():
    assert (
        repr(HyperSimplexLoss(prior=0.5, tau=1.5))
        == "HyperSimplexLoss(reduction='mean', prior=0.5, tau=1.5, momentum=None)"
    )


def test_soft_labels_in_half_precision_are_one_class_each():
    smooth = one_hot(labels_of(256, classes=100), 100) * 0.9 + 0.001
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        criterion = HyperSimplexLoss()
        criterion(leaf(256, 100).float(), smooth.to(dtype))
        assert criterion.predict(normal(4, 100)).shape == (4,)


def test_an_average_of_models_takes_the_loss_along():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.criterion = nn.Linear(3, 4), HyperSimplexLoss()

    x, labels = normal(40, 3).float(), labels_of(40, classes=4)
    for use_buffers in (False, True):
        model = Model()
        model.criterion(model.linear(x), labels)
        averaged = torch.optim.swa_utils.AveragedModel(model, use_buffers=use_buffers)
        averaged.update_parameters(model)
        averaged.update_parameters(model)
        same(averaged.module.criterion.threshold, model.criterion.threshold)
        assert torch.equal(averaged.module.criterion.predict(x @ x.T[:, :4]), model.criterion.predict(x @ x.T[:, :4]))


def test_states_of_other_moments_load():
    logits, labels = batches(1)[0]
    fresh, used = HyperSimplexLoss(), HyperSimplexLoss()
    used(logits, labels)
    state = used.state_dict()
    used.load_state_dict(fresh.state_dict())
    assert used.threshold is None
    used.load_state_dict({"threshold": state["threshold"]}, strict=False)
    assert torch.equal(used.threshold, state["threshold"])
    assert used.predict(logits).shape == labels.shape
    used(logits, labels)
    # A model that was trained with another loss has nothing to say about this one.
    model = nn.ModuleDict({"linear": nn.Linear(2, 4), "criterion": HyperSimplexLoss()})
    model.load_state_dict({f"linear.{name}": value for name, value in nn.Linear(2, 4).state_dict().items()})
    with pytest.raises(RuntimeError, match="Missing key"):
        used.load_state_dict({})


def test_the_arguments_are_named_as_in_torch():
    logits, target = normal(6, 3), labels_of(6, classes=3)
    by_name = HyperSimplexLoss()(input=logits, target=target)
    same(by_name, HyperSimplexLoss()(logits, target))
