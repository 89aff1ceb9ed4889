"""Throw anything at every function of the compiled module: `python -m tests.kernel.fuzz_kernel SEED`.

Only a crash stops it. A call that is accepted must have been a sound one, so its result is checked.
"""

import random
import sys
from collections import Counter

import numpy as np

from hypersimplex import _kernel, reference
from tests.kernel import fuzz_addresses

ERRORS = (TypeError, ValueError, IndexError, OverflowError, MemoryError, BufferError)
SHAPES = [(), (0,), (1,), (5,), (64,), (3, 5), (5, 3), (0, 5), (5, 0), (2, 3, 4), (2, 2, 2, 2), (1, 1, 7)]
STRANGE = ["f2", "i4", "i8", "u1", "?", "c8", "c16", ">f4", ">f8", "O", "U3", "M8[s]"]
JUNK = [None, "text", b"bytes", 1, 2.5, [1.0, 2.0], {}, object(), np.float32(1), np.float64, slice(None), ...]


def array(rng, shape=None, dtype=None):
    a = zeros(rng, shape, dtype)
    if a.dtype in ("f4", "f8") and a.flags.writeable:
        a[...] = np.random.default_rng(rng.getrandbits(32)).normal(size=a.shape)
        a[a > 2] = rng.choice([2, np.inf, np.nan])
    return a


def zeros(rng, shape, dtype):
    """An array of some shape, dtype and layout: contiguous or not, read-only, broadcast, with large steps."""
    shape = rng.choice(SHAPES) if shape is None else shape
    if dtype is None:
        dtype = rng.choice(["f4", "f8"] if rng.random() < 0.7 else STRANGE)
    layout = rng.randrange(16)
    if layout == 1 and len(shape) > 1:
        return np.zeros(shape[::-1], dtype).T
    if layout == 2 and shape:
        return np.zeros((*shape[:-1], 3 * shape[-1]), dtype)[..., ::3]
    if layout == 3 and shape:
        return np.zeros(shape, dtype)[..., ::-1]
    if layout == 4:
        return np.broadcast_to(np.zeros((), dtype), shape)
    if layout == 5 and shape:
        return np.zeros((shape[0] * 100_003, *shape[1:]), dtype)[::100_003]
    a = np.zeros(shape, dtype)
    if layout == 6:
        a.flags.writeable = False
    if layout == 7 and shape and a.size and a.dtype.kind in "fiu":
        # Not aligned to its own size.
        return np.zeros(a.nbytes + 1, "u1")[1:].view(dtype).reshape(shape)
    return a


def numbers(rng):
    return rng.choice([0, 1, 1.0, 2, 0.5, 0.25, 3.0, -1, 1e300, float("nan"), float("inf"), 2**62, 2**70])


def per_slice(rng, shape):
    if rng.random() < 0.5 or not shape:
        return None
    return array(
        rng, shape[: rng.randrange(len(shape))] if rng.random() < 0.5 else shape[:-1], rng.choice(["f8", "f4"])
    )


def arguments(rng):
    x = array(rng)
    same = rng.random() < 0.7
    y = array(rng, x.shape if same else None, x.dtype if same else None)
    if rng.random() < 0.6:
        y = np.empty_like(x)
    args = {
        "x": x,
        "k": numbers(rng),
        "tau": numbers(rng),
        "y": y,
        "mu": per_slice(rng, x.shape),
        "ks": per_slice(rng, x.shape),
        "taus": per_slice(rng, x.shape),
        "axis": rng.choice([-1, -1, 0, 0, 1, 2, -2, 7, -9, 2**31, 2**63 - 1, -(2**63)]),
        "threads": rng.choice([1, 2, 3, 0, -1, 10_000, 2**40]),
    }
    for name in args:
        if rng.random() < 0.02:
            args[name] = rng.choice(JUNK)
    return args


def call(name, args):
    """Call, and hold what was accepted against the reference; NaN in, NaN out."""
    if args["y"] is not None and isinstance(args["y"], np.ndarray) and args["y"].flags.writeable:
        args["y"][...] = args["y"].dtype.type(7) if args["y"].dtype.kind == "f" else args["y"]
    if name == "binary":
        args = {key: args[key] for key in ("x", "k", "y", "ks", "axis", "threads")}
    try:
        failed = getattr(_kernel, name)(**args)
    except ERRORS as error:
        return type(error).__name__
    if failed is not None:
        assert isinstance(failed, tuple), failed
        return "refused"
    x, y = args["x"], args["y"]
    assert isinstance(x, np.ndarray)
    assert x.dtype in (np.float32, np.float64)
    assert_aligned(args)
    if y is None:
        return "accepted"
    assert y.flags.writeable
    assert y.shape == x.shape
    k = args["k"] if args["ks"] is None else args["ks"].reshape(np.delete(x.shape, args["axis"]))
    if name == "binary":
        expected = reference.binary_argmax(x, k, axis=args["axis"])
    else:
        tau = args["tau"] if args["taus"] is None else args["taus"].reshape(np.delete(x.shape, args["axis"]))
        expected = reference.soft_binary_argmax(x, k, tau, axis=args["axis"])
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-6)
    return "accepted"


def assert_aligned(args):
    """Reading a misaligned number is undefined in C++, whatever this processor makes of it."""
    assert all(a.flags.aligned for a in args.values() if isinstance(a, np.ndarray)), "misaligned"


def call_arrays(rng):
    return call(rng.choice(["project", "binary"]), arguments(rng))


def call_address(rng):
    name, memory = rng.choice(sorted(fuzz_addresses.CALLS)), fuzz_addresses.Memory(rng.getrandbits(32))
    given = fuzz_addresses.CALLS[name](rng, memory)
    spoiled = rng.random() < 0.3
    try:
        failed = getattr(_kernel, name)(*(fuzz_addresses.spoil(rng, given) if spoiled else given))
    except ERRORS as error:
        return type(error).__name__
    memory.check()
    return "refused" if isinstance(failed, tuple) and isinstance(failed[0], str) else "accepted"


def call_plain(rng):
    """Functions of few arguments: any number of anything."""
    try:
        getattr(_kernel, rng.choice(sorted(PLAIN)))(
            *(rng.choice([*JUNK, [3, 4], [4, 1], 0, -1]) for _ in range(rng.randrange(4)))
        )
    except ERRORS as error:
        return type(error).__name__
    return "accepted"


def some(rng, shape, dtype):
    """An array that fits, or now and then one that does not."""
    return array(rng) if rng.random() < 0.1 else rng.choice(JUNK) if rng.random() < 0.05 else array(rng, shape, dtype)


def backward_arguments(rng):
    shape, dtype, axis = rng.choice(SHAPES), rng.choice(["f4", "f8"]), rng.choice([-1, -1, 0, 1, -9])
    slices = np.delete(shape, axis) if shape and -len(shape) <= axis < len(shape) else ()
    outputs = {"grad": (shape, dtype), "grad_k": (slices, "f8"), "grad_tau": (slices, "f8"), "taus": (slices, "f8")}
    given = {name: some(rng, tuple(kind[0]), kind[1]) for name, kind in outputs.items() if rng.random() < 0.5}
    arrays = {"y": some(rng, shape, dtype), "v": some(rng, shape, dtype)}
    return arrays | given | {"tau": numbers(rng), "axis": axis, "threads": rng.choice([1, 2, 3, 0])}


def threshold_arguments(rng):
    shape = rng.choice([1, 2, 7]), rng.choice([1, 2, 33]), rng.choice([1, 1, 3])
    dtype, each = rng.choice(["f4", "f8"]), ((shape[1],), "f8")
    labels = np.random.default_rng(rng.getrandbits(32)).integers(-1, shape[1] + 1, size=(shape[0], shape[2]))
    args = {"x": some(rng, shape, dtype), "labels": None, "dense": None, "ignored": -1, "threads": rng.choice([1, 2])}
    args |= {"labels": labels} if rng.random() < 0.5 else {"dense": some(rng, shape, dtype)}
    args |= {name: some(rng, *each) for name in ("mu", "low", "tau")}
    if rng.random() < 0.5:
        return args | {"sums": some(rng, (5, shape[1]), "f8")}
    return args | {"grad": some(rng, shape, dtype), "mean": some(rng, *each), "factor": some(rng, *each)}


def box_arguments(rng):
    rows, n, dtype = rng.choice([1, 2, 7]), rng.choice([1, 3, 33]), rng.choice(["f4", "f8"])
    each = {name: some(rng, (rows,), "f8") for name in ("mu", "total", "tau")}
    wide = [(rows, n), (1, n), (rows, 1), (1, 1), (rows + 1, n)]
    entries = {name: some(rng, rng.choice(wide), rng.choice(["f4", "f8"])) for name in ("lower", "upper", "weight")}
    both = {name: some(rng, (rows, n), dtype) for name in ("x", "y")}
    return both | each | entries | {"at_most": rng.random() < 0.5, "threads": rng.choice([1, 2, 0])}


def segment_arguments(rng):
    rows, size, dtype = rng.choice([0, 1, 5, 70]), rng.choice([0, 1, 9, 300]), rng.choice(["f4", "f8"])
    ends = np.sort(np.random.default_rng(rng.getrandbits(32)).integers(0, size + 1, size=rows + 1))
    ends[:1], ends[-1:] = 0, size
    if rng.random() < 0.3:
        ends[rng.randrange(rows + 1)] += rng.choice([-(2**62), -1, 1, 1000, 2**62])
    rooms = {"y": ((size,), dtype), "v": ((size,), dtype)}
    rooms |= dict.fromkeys(("ks", "taus", "grad_k", "grad_tau"), ((rows,), "f8"))
    given = {name: some(rng, *kind) for name, kind in rooms.items() if rng.random() < 0.5}
    numbers_ = {"k": rng.choice([0, 0.5, 1, -1, np.nan]), "tau": rng.choice([1, 0.1, 0, np.inf])}
    return {"x": some(rng, (size,), dtype), "offsets": ends, "threads": rng.choice([1, 2])} | numbers_ | given


def coactive_arguments(rng):
    rows, n = rng.choice([0, 1, 7, 300]), rng.choice([1, 2, 33])
    args = {"v": some(rng, (rows, n), rng.choice(["f4", "f8"])), "low": 0, "high": rng.choice([1, -1, np.nan])}
    rooms = {"sums": ((n,), "f8"), "matrix": ((n, n), "f8")}
    return args | {name: some(rng, *kind) for name, kind in rooms.items() if rng.random() < 0.7}


def column_arguments(*names, **dtypes):
    """Of functions on a graph of columns: links, and outputs, one of them as wide as the links."""

    def make(rng):
        n = rng.choice([0, 1, 2, 9])
        each = {name: some(rng, (n,), dtypes.get(name, "f8")) for name in names}
        args = {"links": some(rng, (n, n), "f8")} | each
        return args | {name: some(rng, (n, n), "f8") for name in ("inverse",) if name in names}

    return make


STEP = column_arguments("bias", "excess", "capacity", "move")

VIEWS = {
    "column_step": lambda rng: STEP(rng) | {"slack": numbers(rng)},
    "column_inverse": column_arguments("bias", "inverse"),
    "column_parts": column_arguments("parts", parts="i8"),
    "backward": backward_arguments,
    "at_thresholds": threshold_arguments,
    "box": box_arguments,
    "segments": segment_arguments,
    "coactive": coactive_arguments,
}


def call_views(rng):
    name = rng.choice(sorted(VIEWS))
    args = VIEWS[name](rng)
    try:
        failed = getattr(_kernel, name)(**args)
    except ERRORS as error:
        return type(error).__name__
    assert_aligned(args)
    return "refused" if isinstance(failed, tuple) and isinstance(failed[0], str) else "accepted"


ARRAYS, PLAIN = (
    {"project", "binary", *VIEWS},
    {"variant", "constants", "lies_evenly", "xla_compatible", "xla_handlers"},
)
ENTRIES = ARRAYS | PLAIN | set(fuzz_addresses.CALLS)


def main(seed, calls=4000):
    public = {name for name in dir(_kernel) if not name.startswith("_")}
    assert public == ENTRIES, f"not reached, or not there: {public ^ ENTRIES}"
    rng = random.Random(seed)
    outcomes = Counter()
    with np.errstate(all="ignore"):
        for _ in range(calls):
            outcomes[rng.choice([call_arrays, call_arrays, call_views, call_address, call_plain])(rng)] += 1
    print(*(f"{name}:{count}" for name, count in sorted(outcomes.items())))


if __name__ == "__main__":
    main(int(sys.argv[1]))
