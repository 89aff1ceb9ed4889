"""Export: decisions, the loss in training mode and the operators as graphs that are saved, loaded and run elsewhere."""

import copy
import importlib.util
import io

import pytest
import torch
from torch import nn

from hypersimplex._curves import CURVES
from hypersimplex.torch import (
    HyperSimplexLoss,
    SoftBinaryArgmax,
    binary_argmax,
    soft_binary_argmax,
    soft_topk,
    threshold,
)
from tests.torch.losses import labels_of, normal, same

needs_onnx = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxscript", "onnxruntime")),
    reason="needs the packages onnx, onnxscript and onnxruntime",
)
# The exporter's own libraries warn about each other.
quiet = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


class Call(nn.Module):
    def __init__(self, function, *parts):
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, *inputs):
        return self.function(*self.parts, *inputs)


def decision(kind="classes"):
    torch.manual_seed(0)
    linear, criterion = nn.Linear(5, 4), HyperSimplexLoss(num_classes=4, tau=2.0)
    linear.bias.data += torch.tensor([5.0, -3.0, 0.0, 9.0])
    x = normal(60, 5, dtype=torch.float32)
    target = labels_of(60, classes=4) if kind == "classes" else (normal(60, 4) > 0).float()
    criterion(linear(x), target)
    if kind == "folded":
        criterion.fold_into_(linear)
    return Call(lambda linear, criterion, x: criterion.predict(linear(x)), linear, criterion).eval(), x


@pytest.mark.parametrize("kind", ["classes", "multilabel", "folded"])
def test_predict(kind):
    model, x = decision(kind)
    exported = torch.export.export(model, (x,), dynamic_shapes=(({0: torch.export.Dim("n", min=2)},),))
    more = normal(90, 5, dtype=torch.float32, seed=3)
    expected = model(more)
    assert torch.equal(exported.module()(more), expected)
    assert 0 < expected.double().mean() < expected.max()
    assert expected.dim() == (1 if kind == "classes" else 2)


def test_a_loss_in_training_mode_is_exported_saved_and_loaded():
    model = Call(
        lambda linear, criterion, x, y: criterion(linear(x), y), nn.Linear(5, 4), HyperSimplexLoss(num_classes=4)
    )
    x, target = normal(60, 5, dtype=torch.float32), labels_of(60, classes=4)
    file = io.BytesIO()
    torch.export.save(torch.export.export(model, (x, target)), file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    for _ in range(2):  # it moves its thresholds as the module does
        same(loaded(x, target), model(x, target))
    state = model.parts[1].state_dict()
    assert state["samples"] == 120
    for name, value in state.items():
        torch.testing.assert_close(loaded.state_dict()[f"parts.1.{name}"], value)
    loaded(x, target).backward()
    model(x, target).backward()
    same(loaded.get_parameter("parts.0.weight").grad, model.parts[0].weight.grad)


FUNCTIONS = {
    "soft_binary_argmax": lambda x: soft_binary_argmax(x, 2, 0.5),
    "every k": lambda x: soft_binary_argmax(x, x.new_tensor([0, 1.5, 3, 5, 8]), 0.7, 1),
    "dim 0": lambda x: soft_binary_argmax(x, 2.5, x.new_tensor([0.1, 1.0, 9.0, 1, 1, 2, 3, 4]), 0),
    "threshold": lambda x: threshold(x, x.new_tensor([0, 1.5, 3, 5, 8]), 0.5, 1),
    **{
        f"{function.__name__}, {curve}": lambda x, function=function, curve=curve: function(
            x, x.new_tensor([0.5, 1.5, 3, 5, 7]), 0.5, curve=curve
        )
        for curve in CURVES[1:]
        for function in (soft_topk, threshold)
    },
    "binary_argmax": lambda x: binary_argmax(x, 3, 0),
    "binary, every k": lambda x: binary_argmax(x, x.new_tensor([0, 1, 3, 5, 8])),
}


@pytest.mark.parametrize("function", [soft_binary_argmax, threshold, binary_argmax])
def test_functions_are_leaves_of_fx(function):
    traced, x = torch.fx.symbolic_trace(lambda x: function(x.tanh(), 2) * 3), normal(5, 8)
    assert function in [node.target for node in traced.graph.nodes]
    same(copy.deepcopy(traced)(x), function(x.tanh(), 2) * 3)


def special_rows(x):
    """Ties, masks, infinities: what the edges of the operator are about."""
    x = x.clone()
    x[0, :4] = 1.0
    x[1, 5:] = -torch.inf
    x[2, 2] = torch.inf
    return x


def far_rows(x):
    """Finite, but so far apart that tau vanishes beside them: masks such as finfo.min, and their opposite."""
    x = x.clone()
    x[:, 0], x[:, 1] = 1e30, torch.finfo(torch.float32).min
    x[1, 2:5] = 1e30
    x[2, :] = 1e30
    return x


def run_onnx(model, x, tmp_path, more):
    import onnxruntime

    from hypersimplex.torch.onnx import translations

    torch.onnx.export(
        model, (x,), tmp_path / "model.onnx", dynamo=True, custom_translation_table=translations(), verbose=False
    )
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    (name,) = [each.name for each in session.get_inputs()]
    return [torch.from_numpy(session.run(None, {name: each.numpy()})[0]) for each in more]


@needs_onnx
@quiet
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_operators_in_onnxruntime(name, dtype, tmp_path):
    x = normal(5, 8, dtype=dtype)
    more = [x, 100 * x, x + 1e4, torch.zeros_like(x), far_rows(x)]
    if name in ("soft_binary_argmax", "binary_argmax", "binary, every k"):
        more.append(special_rows(x))
    for got, given in zip(run_onnx(Call(FUNCTIONS[name]), x, tmp_path, more), more, strict=True):
        torch.testing.assert_close(got, FUNCTIONS[name](given), rtol=1e-5, atol=1e-5)


@needs_onnx
@quiet
def test_masks_and_infinities_in_onnxruntime(tmp_path):
    x, k = special_rows(normal(5, 8)), torch.tensor([3.0, 5.0, 1.0, 2.5, 8.0], dtype=torch.float64)
    for function in (soft_binary_argmax, threshold):
        (got,) = run_onnx(Call(lambda x, function=function: function(x, k, 0.5)), x, tmp_path, [x])
        torch.testing.assert_close(got, function(x, k, 0.5), rtol=1e-9, atol=1e-9)


@needs_onnx
@quiet
@pytest.mark.parametrize("kind", ["classes", "multilabel"])
def test_predict_in_onnxruntime(kind, tmp_path):
    model, x = decision(kind)
    assert torch.equal(run_onnx(model, x, tmp_path, [x])[0], model(x))


def test_tensors_of_the_operator_s_module_are_buffers():
    module = SoftBinaryArgmax(torch.tensor(2.0), tau=nn.Parameter(torch.tensor(0.5)))
    assert {name for name, _ in module.named_buffers()} == {"k"}
    assert {name for name, _ in module.named_parameters()} == {"tau"}
    fresh = SoftBinaryArgmax(torch.tensor(1.0), tau=nn.Parameter(torch.tensor(1.0)))
    fresh.load_state_dict(module.state_dict())
    x = normal(3, 5)
    same(fresh(x), soft_binary_argmax(x, 2.0, 0.5))
    assert module.to("meta").k.is_meta
