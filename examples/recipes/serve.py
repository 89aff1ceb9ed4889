"""From training to serving: save, load, fold the thresholds into the last layer, export for torch and for ONNX.

ONNX needs `pip install onnx onnxscript onnxruntime`. Run with `python examples/recipes/serve.py`; some ten seconds.
"""

import tempfile
from importlib.util import find_spec
from pathlib import Path

import torch
from _digits import digits
from torch import Tensor, nn

from hypersimplex.torch import HyperSimplexLoss, soft_topk


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(64, 64), nn.ReLU()), nn.Linear(64, 10)
        self.loss = HyperSimplexLoss(num_classes=10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x))
        return logits


class Gate(nn.Module):
    """A model that keeps `soft_topk` when it is exported."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Linear(64, 8)

    def forward(self, x: Tensor) -> Tensor:
        gates: Tensor = soft_topk(self.scores(x), k=2)
        return gates


def train(x: Tensor, y: Tensor) -> Classifier:
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        for batch in torch.randperm(len(x)).chunk(2):
            optimizer.zero_grad()
            model.loss(model(x[batch]), y[batch]).backward()
            optimizer.step()
    with torch.no_grad():
        model.loss.calibrate([(model(x), y)])  # the thresholds of the final weights
    return model.eval()


def folded(path: Path) -> nn.Sequential:
    """An ordinary network out of a saved one: its plain argmax decides, and the library is no longer needed."""
    model = Classifier()
    model.load_state_dict(torch.load(path, weights_only=True))
    model.loss.fold_into_(model.head)
    return nn.Sequential(model.body, model.head).eval()


def by_onnx(program: torch.export.ExportedProgram, x: Tensor, path: Path) -> Tensor:
    import onnxruntime

    torch.onnx.export(program, f=path, verbose=False)
    session = onnxruntime.InferenceSession(path)
    (scores,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    return torch.from_numpy(scores)


def nodes(model: nn.Module, x: Tensor) -> int:
    """Of the ONNX graph."""
    from hypersimplex.torch.onnx import translations

    program = torch.onnx.export(
        model, (x,), dynamo=True, verbose=False, custom_translation_table=translations(), optimize=True
    )
    return len(list(program.model.graph))


@torch.no_grad()
def main() -> None:
    torch.set_num_threads(1)
    x, y, test_x, test_y = digits()
    with torch.enable_grad():
        model = train(x, y)
    decided = model.loss.predict(model(test_x))

    def report(name: str, classes: Tensor) -> None:
        accuracy, same = ((classes == other).double().mean() for other in (test_y, decided))
        print(f"{name:34} accuracy {accuracy:.3f}   decisions as predict {same:7.1%}")

    with tempfile.TemporaryDirectory() as folder:
        saved, exported, onnx = (Path(folder) / f"digits.{kind}" for kind in ("pt", "pt2", "onnx"))
        torch.save(model.state_dict(), saved)
        report("predict", decided)
        report("plain argmax of the logits", model(test_x).argmax(1))
        network = folded(saved)
        report("saved, loaded, folded: argmax", network(test_x).argmax(1))
        program = torch.export.export(network, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
        torch.export.save(program, exported)
        report("torch.export", torch.export.load(exported).module()(test_x).argmax(1))
        if all(find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime")):
            report("ONNX", by_onnx(program, test_x, onnx).argmax(1))
            with torch.enable_grad():
                print(f"{'nodes of soft_topk':34} {nodes(Gate().eval(), x)}")
            print(f"{'nodes of soft_topk, no_grad':34} {nodes(Gate().eval(), x)}")


if __name__ == "__main__":
    main()
