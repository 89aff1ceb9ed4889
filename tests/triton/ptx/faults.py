"""What the executor reports instead of going on."""


class Fault(Exception):  # noqa: N818 (its subclasses name what happened)
    """The program did what no program may do, or what this executor does not know."""


class OutOfBounds(Fault):
    """An access beyond the memory that was handed over."""


class Misaligned(Fault):
    """An address that is no multiple of the size of the access."""


class Unwritten(Fault):
    """A read of a register or of memory that nobody wrote, or an output that was not written."""


class Race(Fault):
    """Two accesses to one address, one of them a write, in an order that nothing fixes."""


class Diverged(Fault):
    """A barrier or an exchange that not all threads take part in that must."""


class Unknown(Fault):
    """An opcode, an operand or a directive that nobody taught the executor."""
