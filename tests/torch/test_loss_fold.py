"""Folding the thresholds into the last layer: plain argmax is then the decision, in every export."""

import importlib.util
import warnings

import pytest
import torch
from torch import nn

from hypersimplex.torch import HyperSimplexLoss
from tests.torch.losses import DOUBLE, labels_of, normal

TAUS = [1.0, 2.5, [0.5, 1.0, 2.0, 4.0]]


def trained(logits, target, tau=1.0):
    criterion = HyperSimplexLoss(tau=tau)
    criterion(logits.detach().requires_grad_(), target)
    return criterion


@pytest.mark.parametrize("tau", TAUS, ids=str)
def test_folded_linear(tau):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4)).double()
    model[-1].bias.data += torch.tensor([5.0, -3.0, 0.0, 9.0])
    x, target = normal(300, 5), labels_of(300, classes=4)
    logits = model(x).detach()
    criterion = trained(logits, target, tau)
    scores, classes = criterion.scores(logits), criterion.predict(logits)
    assert criterion.fold_into_(model[-1]) is model[-1]
    torch.testing.assert_close(model(x).detach(), scores, rtol=1e-12, atol=1e-12)
    assert torch.equal(model(x).argmax(1), classes)
    assert (logits.argmax(1) != classes).any(), "folding must have changed something"
    assert model[-1].weight.requires_grad


@pytest.mark.parametrize("tau", TAUS, ids=str)
@pytest.mark.parametrize(("layer", "shape"), [(nn.Conv2d(3, 4, 1), (6, 3, 5, 2)), (nn.Conv1d(3, 4, 3), (6, 3, 9))])
def test_folded_convolution(tau, layer, shape):
    torch.manual_seed(0)
    layer.double().reset_parameters()
    x = normal(*shape)
    logits = layer(x).detach()
    criterion = trained(logits, labels_of(6, *logits.shape[2:], classes=4), tau)
    scores, classes = criterion.scores(logits), criterion.predict(logits)
    criterion.fold_into_(layer)
    torch.testing.assert_close(layer(x).detach(), scores, rtol=1e-12, atol=1e-12)
    assert torch.equal(layer(x).argmax(1), classes)


def test_folded_binary():
    layer = nn.Linear(3, 1).double()
    x, target = normal(80, 3), labels_of(80, classes=2)
    logits = layer(x).squeeze(1).detach() + 4
    layer.bias.data += 4
    criterion = trained(logits, target)
    classes = criterion.predict(logits)
    criterion.fold_into_(layer)
    assert torch.equal((layer(x).squeeze(1) > 0.5).long(), classes)
    assert 0 < classes.sum() < 80


@pytest.mark.parametrize(
    ("layer", "kind", "message"),
    [
        (nn.Linear(3, 4, bias=False), ValueError, "linear must have a bias .* thresholds, got Linear without one"),
        (nn.Linear(3, 5), ValueError, "linear must have 4 outputs, one for each threshold, got 5"),
        (nn.Conv2d(4, 8, 1), ValueError, "linear must have 4 outputs, one for each threshold, got 8"),
        (nn.ConvTranspose2d(4, 4, 1), TypeError, "linear must be nn.Linear or nn.Conv, got ConvTranspose2d"),
        (nn.ReLU(), TypeError, "linear must be nn.Linear or nn.Conv, got ReLU"),
        (nn.Sequential(nn.Linear(3, 4)), TypeError, "linear must be nn.Linear or nn.Conv, got Sequential"),
        (nn.BatchNorm1d(4), TypeError, "linear must be nn.Linear or nn.Conv, got BatchNorm1d"),
        (nn.Bilinear(2, 2, 4), TypeError, "linear must be nn.Linear or nn.Conv, got Bilinear"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)  # fmt: skip
def test_refusals(layer, kind, message):
    criterion = trained(normal(40, 4), labels_of(40, classes=4))
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    with pytest.raises(kind, match=message):
        criterion.fold_into_(layer)
    assert all(torch.equal(layer.state_dict()[name], value) for name, value in before.items())


def folded_model():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
    model[-1].bias.data += torch.tensor([5.0, -3.0, 0.0, 9.0])
    x = normal(60, 5, dtype=torch.float32)
    logits = model(x).detach()
    criterion = trained(logits, labels_of(60, classes=4), tau=2.0)
    classes = criterion.predict(logits)
    criterion.fold_into_(model[-1])
    return model, x, classes


def test_torchscript(tmp_path):
    model, x, classes = folded_model()
    with warnings.catch_warnings():
        # torch deprecates TorchScript as a whole; the exported model is what is tested here.
        warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*torch.jit")
        torch.jit.save(torch.jit.trace(model, x), tmp_path / "traced.pt")
        torch.jit.save(torch.jit.script(model), tmp_path / "scripted.pt")
        for name in ("traced.pt", "scripted.pt"):
            assert torch.equal(torch.jit.load(tmp_path / name)(x).argmax(1), classes)


def test_torch_export():
    model, x, classes = folded_model()
    assert torch.equal(torch.export.export(model, (x,)).module()(x).argmax(1), classes)


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxscript")),
    reason="exporting to ONNX needs the packages onnx and onnxscript",
)
# The exporter's own libraries warn about each other.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_onnx(tmp_path):
    import onnx
    from onnx.reference import ReferenceEvaluator

    model, x, classes = folded_model()
    torch.onnx.export(model, (x,), tmp_path / "model.onnx", dynamo=True)
    exported = onnx.load(tmp_path / "model.onnx")
    onnx.checker.check_model(exported)
    (logits,) = ReferenceEvaluator(exported).run(None, {exported.graph.input[0].name: x.numpy()})
    assert torch.equal(torch.from_numpy(logits).argmax(1), classes)


def folded(tau=2.0):
    layer, x, target = nn.Linear(5, 4, dtype=DOUBLE), normal(60, 5), labels_of(60, classes=4)
    layer.bias.data += torch.tensor([5.0, -3.0, 0.0, 9.0])
    criterion = trained(layer(x), target, tau)
    before = criterion.predict(layer(x)), criterion.scores(layer(x)), criterion(layer(x).detach(), target)
    criterion.fold_into_(layer)
    return criterion, layer(x).detach(), target, before


@pytest.mark.parametrize("tau", TAUS, ids=str)
def test_after_folding_the_module_takes_logits_as_scores(tau):
    criterion, logits, target, (classes, scores, loss) = folded(tau)
    fresh = HyperSimplexLoss(tau=tau)
    fresh.load_state_dict(criterion.state_dict())
    for module in (criterion, fresh):
        assert torch.equal(module.predict(logits), classes)
        assert torch.equal(module.predict(logits), logits.argmax(1))
        torch.testing.assert_close(module.scores(logits), scores, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(module.eval()(logits, target), loss, rtol=1e-12, atol=1e-12)


def test_after_folding_nothing_moves_and_an_error_says_why():
    criterion, logits, target, _ = folded()
    before = criterion.threshold.clone()
    calls = {
        "fold": lambda: criterion.fold_into_(nn.Linear(5, 4)),
        "train": lambda: criterion(logits.requires_grad_(), target),
        "calibrate": lambda: criterion.calibrate([(logits, target)]),
    }
    for call in calls.values():
        with pytest.raises(RuntimeError, match=r"were folded into a layer.*construct a new one to train or calibrate"):
            call()
    assert torch.equal(criterion.threshold, before)
    criterion.reset_parameters()
    calls["train"]()
    assert not torch.equal(criterion.threshold, before)


def test_a_layer_whose_weight_is_computed_is_refused():
    criterion = HyperSimplexLoss()
    criterion(torch.randn(20, 3, requires_grad=True), torch.arange(20) % 3)
    layer = torch.nn.utils.parametrizations.weight_norm(nn.Linear(6, 3))
    before = layer.bias.clone()
    with pytest.raises(ValueError, match="linear must hold its weight itself: remove the parametrization first"):
        criterion.fold_into_(layer)
    assert torch.equal(layer.bias, before)
