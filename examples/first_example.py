"""The paper's example, x = (0.1, 1.6, 1): Soft-Binary-Argmax@k for several k and tau.

Run with `python examples/first_example.py`.
"""

import numpy as np

import hypersimplex as hs

X = np.array([0.1, 1.6, 1.0])


def numbers(values: np.ndarray) -> str:
    return "  ".join(f"{value:6.4f}" for value in values)


def main() -> None:
    print("Soft-Binary-Argmax@k of x = (0.1, 1.6, 1): y = clip((x - mu) / tau, 0, 1), sum(y) = k\n")
    print(f"{'k':>4} {'tau':>7} {'mu':>9}   {'y':<22}   sum(y)")
    for k in (1, 1.5, 2):
        if k == int(k):
            y = hs.binary_argmax(X, int(k))
            print(f"{k:4} {'-> 0':>7} {'':>9}   {numbers(y)}   {y.sum():.4f}   binary_argmax")
        for tau in (0.01, 0.5, 1.0, 3.0, 10.0):
            y = hs.soft_binary_argmax(X, k, tau)
            mu = float(hs.threshold(X, k, tau))
            print(f"{k:4} {tau:7} {mu:9.4f}   {numbers(y)}   {y.sum():.4f}")
        print()


if __name__ == "__main__":
    main()
