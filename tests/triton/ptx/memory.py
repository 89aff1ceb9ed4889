"""The three memories, each with a note of who wrote what, so that a wrong access is reported and not only made.

An access is given as one address for each thread that takes part, the bytes of each, and who those threads are.
"""

import ctypes
from typing import Any

import numpy as np

from tests.triton.ptx.faults import Misaligned, OutOfBounds, Race, Unknown, Unwritten
from tests.triton.ptx.numbers import U8, U64, UNSIGNED

Array = Any
NOBODY, BEFORE = 0, 255
SEVERAL = -2  # more than one warp
SHARED, LOCAL = 1 << 10, 1 << 10  # where the addresses of each begin; global memory has those of the process
WINDOWS = {"shared": 1 << 61, "local": 1 << 62}  # what a generic address has more


def aligned(address: Array, size: int) -> None:
    if (address % np.uint64(size) != 0).any():
        raise Misaligned(f"an access of {size} bytes at {int(address[address % np.uint64(size) != 0][0]):#x}")


def whole(data: Array, size: int) -> Array:
    """Bytes as numbers of `size` bytes; what does not fill the last is left out."""
    kind = UNSIGNED.get(8 * size, np.dtype((np.void, size)))
    return data[: len(data) // size * size].view(kind)


class Region:
    """Global memory of one tensor. `mark` says of every byte who wrote it: nobody, who came before, or which block."""

    def __init__(self, begin: int, end: int, is_fresh: bool) -> None:
        self.begin, self.end = begin, end
        self.origin = begin // 16 * 16  # so that the largest access is aligned in `data` where it is in memory
        size = -(-(end - self.origin) // 16) * 16
        self.data = np.frombuffer((ctypes.c_uint8 * (end - self.origin)).from_address(self.origin), U8)
        self.mark = np.full(size, NOBODY if is_fresh else BEFORE, U8)[: len(self.data)]

    def unwritten(self) -> int:
        return int((self.mark[self.begin - self.origin :] == NOBODY).sum())


class Global:
    """The tensors that a launch was given. A block may not read or write what another block of it wrote."""

    def __init__(self, regions: list[Region]) -> None:
        self.regions = sorted(regions, key=lambda region: region.begin)
        self.begins = np.array([region.begin for region in self.regions], U64)
        self.own = 1

    def start_block(self, number: int) -> None:
        self.own = 1 + number % 254

    def _parts(self, address: Array, size: int) -> Any:
        """Region by region: the positions among the addresses, and where they lie in it, in units of the access."""
        aligned(address, size)
        which = np.searchsorted(self.begins, address, side="right") - 1
        for number in np.unique(which):
            region = self.regions[max(number, 0)]
            at = slice(None) if (which == number).all() else np.flatnonzero(which == number)
            there = address[at]
            if number < 0 or int(there.max()) + size > region.end or int(there.min()) < region.begin:
                known = ", ".join(f"{each.begin:#x} to {each.end:#x}" for each in self.regions)
                raise OutOfBounds(
                    f"global memory: {size} bytes at {int(there.min()):#x} to {int(there.max()):#x}; known: {known}"
                )
            yield region, at, ((there - np.uint64(region.origin)) // np.uint64(size)).astype(np.int64)

    def read(self, address: Array, size: int, _who: Array) -> Array:
        found = np.empty((len(address), size), U8)
        for region, at, index in self._parts(address, size):
            mark = whole(region.mark, size)[index].view(U8)
            if (mark == NOBODY).any():
                raise Unwritten("global memory that nobody wrote is read")
            if ((mark != BEFORE) & (mark != self.own)).any():
                raise Race("global memory that another block writes is read")
            found[at] = whole(region.data, size)[index].view(U8).reshape(-1, size)
        return found

    def write(self, address: Array, values: Array, who: Array) -> None:
        size = values.shape[1]
        for region, at, index in self._parts(address, size):
            mark = whole(region.mark, size)[index].view(U8)
            if ((mark != NOBODY) & (mark != BEFORE) & (mark != self.own)).any():
                raise Race("two blocks write the same global memory")
            _put(whole(region.data, size), index, values[at], who[at] // 32)
            whole(region.mark, size)[index] = np.full(size, self.own, U8).view(whole(region.mark, size).dtype)[0]


def _put(data: Array, index: Array, values: Array, warps: Array) -> None:
    """Write. Of threads of one warp that write to one address any one may win; between warps that is a race."""
    given = np.ascontiguousarray(values).view(data.dtype).reshape(-1)
    data[index] = given
    if (data[index].view(U8) != given.view(U8)).any():
        order = np.random.default_rng(len(index)).permutation(len(index))
        data[index[order]] = given[order]
        _, first, which = np.unique(index, return_index=True, return_inverse=True)
        if (warps[first][which] != warps).any():
            raise Race("two warps write different values to one address in one instruction")


class Shared:
    """A block's shared memory. Between two barriers no warp may touch what another one writes."""

    def __init__(self, size: int) -> None:
        self.size, self.interval = size, 0
        room = -(-size // 16) * 16
        self.data = np.full(room, 0xA5, U8)
        self.writer, self.reader = np.full(room, -1), np.full(room, -1)
        self.written_in, self.read_in = np.full(room, -1), np.full(room, -1)

    def barrier(self) -> None:
        self.interval += 1

    def _places(self, address: Array, size: int) -> tuple[Array, Array]:
        aligned(address, size)
        offset = address.astype(np.int64) - SHARED
        if (offset < 0).any() or (offset + size > self.size).any():
            raise OutOfBounds(f"shared memory: {size} bytes at {offset.min()} to {offset.max()} of {self.size}")
        return offset // size, (offset[:, None] + np.arange(size)).reshape(-1)

    def read(self, address: Array, size: int, who: Array) -> Array:
        index, places = self._places(address, size)
        warps = np.repeat(who, size)
        if (self.written_in[places] < 0).any():
            raise Unwritten("shared memory that nobody wrote is read")
        self._meet(places, warps, self.written_in, self.writer, "a warp reads shared memory that another one writes")
        first = self.read_in[places] != self.interval
        before = self.reader[places]
        self.reader[places], self.read_in[places] = warps, self.interval
        several = (~first & (before != warps)) | (self.reader[places] != warps)
        self.reader[places[several]] = SEVERAL
        return whole(self.data, size)[index].view(U8).reshape(-1, size)

    def write(self, address: Array, values: Array, who: Array) -> None:
        size = values.shape[1]
        index, places = self._places(address, size)
        warps = np.repeat(who, size)
        self._meet(places, warps, self.written_in, self.writer, "two warps write the same shared memory")
        self._meet(places, warps, self.read_in, self.reader, "a warp writes shared memory that another one reads")
        # Several warps may write the same value in one instruction: they hold copies of it.
        self.writer[places], self.written_in[places] = warps, self.interval
        self.writer[places[self.writer[places] != warps]] = SEVERAL
        _put(whole(self.data, size), index, values, who)

    def _meet(self, places: Array, warps: Array, when: Array, whose: Array, what: str) -> None:
        meet = (when[places] == self.interval) & (whose[places] != warps)
        if meet.any():
            at = places[meet][0]
            raise Race(f"{what}, with no barrier between: warps {whose[at]} and {warps[meet][0]}, byte {at}")


class Local:
    """Each thread's own memory."""

    def __init__(self, threads: int, size: int) -> None:
        self.size, room = size, -(-size // 16) * 16
        self.data = np.full((threads, room), 0xA5, U8)
        self.written = np.zeros((threads, room), bool)

    def _places(self, address: Array, size: int, threads: Array) -> tuple[Array, Array]:
        aligned(address, size)
        offset = address.astype(np.int64) - LOCAL
        if (offset < 0).any() or (offset + size > self.size).any():
            raise OutOfBounds(f"local memory: {size} bytes at {offset.min()} to {offset.max()} of {self.size}")
        return threads[:, None], offset[:, None] + np.arange(size)

    def read(self, address: Array, size: int, threads: Array) -> Array:
        at = self._places(address, size, threads)
        if not self.written[at].all():
            raise Unwritten("local memory that nobody wrote is read")
        return self.data[at]

    def write(self, address: Array, values: Array, threads: Array) -> None:
        at = self._places(address, values.shape[1], threads)
        self.data[at], self.written[at] = values, True


class Generic:
    """Whichever memory an address lies in; the threads of one access must agree on it."""

    def __init__(self, everywhere: Global, shared: Shared, local: Local) -> None:
        self.everywhere, self.shared, self.local = everywhere, shared, local

    def _place(self, address: Array, threads: Array) -> tuple[Any, Array, Array]:
        for memory, name, who in ((self.local, "local", threads), (self.shared, "shared", threads // 32)):
            window = np.uint64(WINDOWS[name])
            inside = (address & window) != 0
            if inside.all():
                return memory, address - window, who
            if inside.any():
                raise Unknown("a generic access to several memories at once")
        return self.everywhere, address, threads

    def read(self, address: Array, size: int, threads: Array) -> Array:
        memory, address, who = self._place(address, threads)
        return memory.read(address, size, who)

    def write(self, address: Array, values: Array, threads: Array) -> None:
        memory, address, who = self._place(address, threads)
        memory.write(address, values, who)
