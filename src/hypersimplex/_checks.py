"""Every check of the arguments and every message: the argument, the rule, the value."""

import importlib.util
import math
import operator
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, SupportsIndex

import numpy as np

from hypersimplex import _kernel
from hypersimplex._curves import CURVES
from hypersimplex._packages import packages_of

Failure = tuple[str, int, int]
LARGEST = sys.float_info.max


def is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:  # by whoever keeps it out
        return False


def missing(what: str, needs: str, extra: str) -> ModuleNotFoundError:
    """The error for a missing package. Its command names the packages of the extra, and never this library.

    So it works for a checkout and for a wheel, and asks no index for a name that a stranger could have taken there.
    """
    packages = packages_of(extra)
    command = "pip install " + (" ".join(packages) or f"'.[{extra}]' in a checkout of hypersimplex")
    if any(p.startswith("'torch") for p in packages) and not is_installed("torch"):
        command += " (without a GPU, first: pip install torch --index-url https://download.pytorch.org/whl/cpu)"
    return ModuleNotFoundError(f"{what} needs {needs}; install it with: {command}")


def not_floating(name: str, dtype: object) -> TypeError:
    return TypeError(f"{name} must be floating point, got {dtype}")


def check_dim(name: str, dim: SupportsIndex, ndim: int) -> int:
    """Return dim as a non-negative number."""
    try:
        dim = operator.index(dim)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {type(dim).__name__}") from None
    if ndim == 0:
        what = "input" if name == "dim" else "x"
        raise ValueError(f"{what} must have at least one dimension, got a scalar")
    if not -ndim <= dim < ndim:
        raise ValueError(f"{name} must be between {-ndim} and {ndim - 1}, got {dim}")
    return dim % ndim


def not_a_number(name: str, value: object) -> TypeError:
    return TypeError(f"{name} must be a number or an array of numbers, got {type(value).__name__}")


def unreadable(name: str, value: object, error: Exception) -> TypeError:
    return TypeError(f"{name} must be readable as an array, got {type(value).__name__}: {error}")


def check_number(name: str, value: object) -> float:
    if isinstance(value, str | bytes | bytearray):
        raise not_a_number(name, value)
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise not_a_number(name, value) from None
    except OverflowError:  # a whole number of hundreds of digits
        raise too_large(name) from None


def too_large(name: str) -> ValueError:
    return ValueError(f"{name} must be a number that float64 holds, got one beyond 1e308")


def not_real(name: str, dtype: object) -> TypeError:
    return TypeError(f"{name} must be real, got {dtype}")


def masked_array(name: str) -> TypeError:
    return TypeError(f"{name} must be an array without a mask (-inf in x leaves entries out), got a masked one")


def not_as_saved(shape: Sequence[int], found: Sequence[int]) -> ValueError:
    rule = f"saved_tensors_hooks must unpack a result of shape {tuple(shape)} as it was packed"
    return ValueError(f"{rule}, got shape {tuple(found)}")


def not_broadcastable(name: str, slices: Sequence[int], shape: Sequence[int]) -> ValueError:
    return ValueError(f"{name} must broadcast to the slices' shape {tuple(slices)}, got shape {tuple(shape)}")


def plain_number(value: float) -> str:
    return f"{value:.0f}" if abs(value) < 1e15 and value == math.floor(value) else repr(float(value))


def bad_k(k: float, n: int, dim: str) -> ValueError:
    return ValueError(f"k must be between 0 and {n} (the size of {dim}), got {plain_number(k)}")


def bad_tau(tau: float) -> ValueError:
    rule = "positive" if math.isfinite(tau) else "positive and finite"
    return ValueError(f"tau must be {rule}, got {float(tau)}")


def masked_k(k: float, limit: int, where: str) -> ValueError:
    """where: the axis (NumPy, JAX), the dim (PyTorch), or the segment, whose k its caller lowers by itself."""
    rule = f"k must be at most {limit}, the number of entries that are not -inf"
    word, _, number = where.partition(" ")
    lower = {"axis": "clip", "dim": "clamp"}.get(word)
    along = number if number.startswith("-") else word  # a loss counts from 0 in a layout of its own
    hint = f"; to lower it where a mask leaves fewer: k = valid.sum({along}).{lower}(max=k)" if lower else ""
    return ValueError(f"{rule}, got {plain_number(k)}{hint}")


def not_whole(k: float) -> ValueError:
    return ValueError(f"k must be a whole number for exactly k ones, got {plain_number(k)}")


def check_curve(curve: object) -> None:
    if curve not in CURVES:
        raise ValueError(f"curve must be {', '.join(map(repr, CURVES[:-1]))} or {CURVES[-1]!r}, got {curve!r}")


def check_numbers(k: object, tau: object, n: int, dim: str) -> None:
    """Check k and tau if they are numbers. Arrays are checked where their values are read."""
    if isinstance(tau, float | int) and not 0 < tau <= LARGEST:
        raise bad_tau(check_number("tau", tau))
    if isinstance(k, float | int) and not 0 <= k <= n:
        raise bad_k(check_number("k", k), n, dim)


def raise_failure(failure: Failure, k: Any, tau: Any, n: int, dim: str) -> NoReturn:
    """Say in words what the kernel found wrong with a slice. k and tau: a number, or an array of one for each slice."""
    what, at, limit = failure
    k, tau = (float(v.reshape(-1)[at]) if hasattr(v, "reshape") else v for v in (k, tau))
    if what == "tau":
        raise bad_tau(tau)
    if what == "masked":
        raise masked_k(k, limit, dim)
    raise not_whole(k) if 0 <= k <= n and k != math.floor(k) else bad_k(k, n, dim)


# Of box sections and segments; their arrays are NumPy's


def fits(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether an array of this shape broadcasts to the wanted one."""
    try:
        return np.broadcast_shapes(tuple(shape), tuple(wanted)) == tuple(wanted)
    except ValueError:
        return False


def not_over_entries(name: str, shape: Sequence[int], found: Sequence[int]) -> ValueError:
    return ValueError(f"{name} must broadcast to the input's shape {tuple(shape)}, got shape {tuple(found)}")


def raise_box_failure(
    failure: Failure, x: Any, at_most: bool, total: Any, tau: Any, lower: Any, upper: Any, weight: Any
) -> NoReturn:
    """Say in words what is wrong with a row of x; the others are as the kernel takes them."""
    what, row, entry = failure
    if what == "tau":
        raise bad_tau(tau[row])
    x = x[row]
    low, high, each = (np.broadcast_to(v[row % len(v)], x.shape) for v in (lower, upper, weight))
    if what == "weight":
        raise ValueError(f"weight must be positive and finite, got {plain_number(each[entry])}")
    if what == "bounds":
        found = f"{plain_number(low[entry])} and {plain_number(high[entry])}"
        raise ValueError(f"lower must be at most upper, got {found}")
    masked = x == -math.inf
    ends = (each * low)[masked].sum(), (each * high)[~masked].sum()
    least, most = (each * low).sum(), sum(ends) if ends[0] > -math.inf else -math.inf
    rule = f"at least {plain_number(least)}" if at_most else f"between {plain_number(least)} and {plain_number(most)}"
    raise ValueError(f"total must be {rule} (what the bounds allow), got {plain_number(total[row])}")


def box_room(eps: float) -> float:
    """By what share of the bounds' size a total may miss them, for the eps of the dtype that is computed in."""
    return _kernel.constants()["box_room"] * eps


def check_box(room: float, at_most: bool, x: Any, lower: Any, upper: Any, weight: Any, total: Any, tau: Any) -> None:
    """What the kernel checks. x, lower, upper and weight are (rows, entries), total and tau (rows,), all in float64."""
    with np.errstate(invalid="ignore"):  # masked entries without a lower bound, others without an upper one
        low, high = weight * lower, weight * np.where(x == -np.inf, lower, upper)
        slack = room * sum(np.where(np.isfinite(v), np.abs(v), 0).sum(-1) for v in (low, weight * upper))
        enough = at_most | np.isnan(x).any(-1) | (total <= high.sum(-1) + slack)
        wrong = {
            "tau": ~((tau > 0) & np.isfinite(tau)),
            "weight": ~((weight > 0) & np.isfinite(weight)),
            "bounds": ~(lower <= upper),
            "total": ~((total >= low.sum(-1) - slack) & enough),
        }
    for what, bad in wrong.items():
        for found in np.argwhere(bad)[:1]:
            failure = (what, int(found[0]), int(found[-1]))
            raise_box_failure(failure, x, at_most, total, tau, lower, upper, weight)


def check_flat(name: str, shape: Sequence[int]) -> None:
    if len(shape) != 1:
        raise ValueError(f"{name} must have one dimension, got shape {tuple(shape)}")


def check_offsets(shape: Sequence[int], whole: bool, dtype: object) -> None:
    if not whole:
        raise TypeError(f"offsets must be whole numbers, got {dtype}")
    if len(shape) != 1 or not shape[0]:
        rule = "offsets must be one more than there are segments, in one dimension"
        raise ValueError(f"{rule}, got shape {tuple(shape)}")


def bad_offsets(size: int, offset: int) -> ValueError:
    return ValueError(f"offsets must rise from 0 to {size} (the size of the input), got {offset} in its place")


def check_segments(offsets: Any, size: int, k: Any = None) -> None:
    """What the kernel checks of the offsets, and of k if it can be read: one number, or one for each segment."""
    sizes = np.diff(offsets)
    wrong = np.append(offsets[:1] != 0, sizes < 0)
    wrong[-1] |= offsets[-1] != size
    for offset in offsets[wrong][:1]:
        raise bad_offsets(size, int(offset))
    if k is not None:
        k = np.broadcast_to(k, sizes.shape)
        for at in np.flatnonzero(~((k >= 0) & (k <= sizes)))[:1]:
            raise bad_k(float(k[at]), int(sizes[at]), f"segment {at}")


def raise_segment_failure(failure: Failure, k: Any, tau: Any, size: int, n: int) -> NoReturn:
    """Say in words what the kernel found wrong with a segment of n entries."""
    if failure[0] == "offsets":
        raise bad_offsets(size, failure[2])
    raise_failure(failure, k, tau, n, f"segment {failure[1]}")


# Of the loss


def both_given(k: object, prior: object) -> ValueError:
    return ValueError(f"k and prior must not both be given, got k={k} and prior={prior}")


def bad_prior(prior: float) -> ValueError:
    return ValueError(f"prior must be between 0 and 1, got {float(prior)}")


def bad_count(k: float, samples: int) -> ValueError:
    return ValueError(f"k must be between 0 and {samples} (the number of samples), got {plain_number(k)}")


def bad_label(label: int, classes: int) -> ValueError:
    hint = "; a binary problem has logits and targets of one shape, (N,) or (N, 1)" if classes == 1 else ""
    return ValueError(f"target must be between 0 and {classes - 1} or ignore_index, got {label}{hint}")


def lost_thresholds(classes: int) -> RuntimeError:
    return RuntimeError(
        f"the thresholds of {classes} classes did not come along: this HyperSimplexLoss was constructed without "
        f"num_classes and had none to copy or load them into; construct it with num_classes={classes}"
    )


# Of the assignment


def not_a_matrix(name: str, shape: Sequence[int]) -> ValueError:
    return ValueError(f"{name} must have two dims, tokens and experts, got shape {tuple(shape)}")


def too_little_capacity(wanted: float, total: float, room: float) -> ValueError:
    rule = f"capacity must sum to at least {plain_number(wanted)}, the sum of k over the tokens"
    masked = f", of which the masks and y <= 1 leave {plain_number(room)}" if room < total else ""
    return ValueError(f"{rule}, got {plain_number(total)}{masked}")


def forced_experts(experts: Sequence[int], forced: float, room: float) -> ValueError:
    names = ", ".join(map(str, experts[:8])) + (", ..." if len(experts) > 8 else "")
    rule = f"capacity must be at least {plain_number(forced)} for experts {names} together"
    return ValueError(f"{rule}, which infinities force on them, got {plain_number(room)}")


# Of tensors


def wrong_shape(name: str, wanted: Sequence[int], shape: Sequence[int]) -> ValueError:
    return ValueError(f"{name} must have shape {tuple(wanted)}, got {tuple(shape)}")


def no_values(name: str, what: str) -> TypeError:
    return TypeError(f"{name} must be a dense tensor with values in memory, got {what}")
