"""What kind of work an opcode is."""

KINDS = (
    "float64", "float64 division", "float32", "float32 division", "integer", "select and move", "global memory",
    "shared memory", "local memory", "parameter", "barrier", "shuffle", "branch",
)  # fmt: skip
_DIVIDES = {"div", "rem", "sqrt", "rcp", "rsqrt", "ex2", "lg2"}
_MEMORY = {"global": "global memory", "shared": "shared memory", "local": "local memory", "param": "parameter"}


def kind_of(opcode: str) -> str:
    base, *modifiers = opcode.split(".")
    if base in ("ld", "st"):
        # LLVM writes generic addresses for the local memory of a thread.
        return next((kind for name, kind in _MEMORY.items() if name in modifiers), "local memory")
    if base in ("ldmatrix", "stmatrix"):
        return "shared memory"
    if base in ("bar", "barrier"):
        return "barrier"
    if base in ("shfl", "redux"):
        return "shuffle"
    if base in ("selp", "mov", "cvta"):
        return "select and move"
    if base in ("bra", "ret", "exit"):
        return "branch"
    if "f64" in modifiers:  # a comparison or conversion too is work of the float64 units
        return "float64 division" if base in _DIVIDES else "float64"
    if any(each.startswith(("f32", "f16", "bf16")) for each in modifiers):
        return "float32 division" if base in _DIVIDES else "float32"
    return "integer"
