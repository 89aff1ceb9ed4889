"""The loss, forward and backward, against PyTorch's own losses; and a whole training step with each.

Run with `python -m benchmarks.loss`. All losses of a case take turns, so that a busy moment hits them alike; the table
shows the median of the rounds, and of every round's ratio to cross-entropy. `--quick` is for trying it out.
"""

import argparse
import statistics
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks import timing
from hypersimplex.torch import HyperSimplexLoss, hypersimplex_loss
from hypersimplex_study.models import paper

CASES = [(128, 10), (1024, 10), (8192, 10), (8192, 100), (4096, 1000)]
BASE = "F.cross_entropy"
Loss = Callable[[Tensor, Tensor], Tensor]


def squared_error(logits: Tensor, target: Tensor) -> Tensor:
    hot = functional.one_hot(target, logits.shape[1]).to(logits.dtype)
    return functional.mse_loss(logits.softmax(1), hot)


def losses(ignored: bool = False) -> dict[str, Loss]:
    """By name; only those that leave out ignored labels, if there are any."""
    leave_out = {
        BASE: functional.cross_entropy,
        "hypersimplex_loss": hypersimplex_loss,
        "HyperSimplexLoss": HyperSimplexLoss(),
    }
    return (
        leave_out
        if ignored
        else leave_out | {"F.mse_loss(softmax)": squared_error, "nn.MultiMarginLoss": nn.MultiMarginLoss()}
    )


def time_losses(n: int, classes: int, rounds: int, ignored: bool) -> timing.Times:
    torch.manual_seed(0)
    logits, target = torch.randn(n, classes, requires_grad=True), torch.randint(classes, (n,))
    if ignored:
        target[torch.rand(n) < 0.1] = -100

    def step(loss: Loss) -> Callable[[], None]:
        def run() -> None:
            logits.grad = None
            loss(logits, target).backward()

        return run

    calls = max(1, min(100, 400_000 // (n * classes)))
    return timing.interleave({name: step(loss) for name, loss in losses(ignored).items()}, rounds, calls)


def time_training(batch: int, rounds: int) -> timing.Times:
    torch.manual_seed(0)
    images, target = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))
    model = paper(channels=3, pixels=8 * 8, classes=10)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step(loss: Loss) -> Callable[[], None]:
        def run() -> None:
            optimizer.zero_grad()
            loss(model(images), target).backward()
            optimizer.step()

        return run

    chosen = {name: loss for name, loss in losses().items() if name in (BASE, "HyperSimplexLoss")}
    return timing.interleave({name: step(loss) for name, loss in chosen.items()}, rounds, 1)


def print_losses(cases: Sequence[tuple[int, int]], rounds: int, ignored: bool) -> None:
    names = list(losses(ignored))
    where = ", a tenth of the labels ignored" if ignored else ""
    print(f"\nMicroseconds forward and backward, and the ratio to {BASE}{where}\n")
    rows = []
    for count in (1, 2):
        for n, classes in cases:
            with timing.threads(count):
                times = time_losses(n, classes, rounds, ignored)
            cells = [
                f"{timing.microseconds(times, name):.0f} ({timing.ratio(times, name, BASE):.2f})" for name in names
            ]
            rows.append([str(count), f"({n}, {classes})", *cells])
    print(timing.table(["threads", "logits", *names], rows, markdown=True))


def print_training(batch: int, rounds: int) -> None:
    print(f"\nA training step of the paper's network, batch {batch}\n")
    for count in (1, 2):
        with timing.threads(count):
            times = time_training(batch, rounds)
        seconds = ", ".join(f"{name} {statistics.median(each):.3f} s" for name, each in times.items())
        print(f"- {count} threads: {seconds}, ratio {timing.ratio(times, 'HyperSimplexLoss', BASE):.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds, small cases, a small training step")
    parser.add_argument("--part", choices=("losses", "training"), help="one of the two; a training step takes seconds")
    parser.add_argument("--ignored", action="store_true", help="the losses with a tenth of the labels ignored")
    parser.add_argument("--rounds", type=int, default=41, help="rounds of the losses (default: 41)")
    options = parser.parse_args()
    print(timing.machine())
    if options.part != "training":
        print_losses(CASES[:2] if options.quick else CASES, 3 if options.quick else options.rounds, options.ignored)
    if options.part != "losses":
        print_training(32 if options.quick else 1024, 3 if options.quick else 7)


if __name__ == "__main__":
    main()
