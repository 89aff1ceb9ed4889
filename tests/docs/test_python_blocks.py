"""Every python block of every page runs, in order, and gives what the comment beside it says."""

import ast
import importlib.util
import io
import tokenize
from contextlib import contextmanager

import pytest

from tests.docs.givens import GIVENS, NEEDS
from tests.docs.pages import PAGES, ROOT, blocks, name

# A comment that shows a value, rather than says something.
VALUE = ("tensor(", "array(", "Array(", "torch.", "[", "'", *"0123456789")
WITH_CODE = [page for page in PAGES if blocks(page, "python")]

# Kept until the process ends: the last reference to a group waits for gloo's thread while it holds the GIL, and that
# thread may still need the GIL to let go of the last collective. Once in many runs, neither would go on.
GROUPS = []


@contextmanager
def one_rank(page):
    """Pages about ranks run as a group of one."""
    if page != "docs/large-batches.md":
        yield
        return
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    GROUPS.append(dist.group.WORLD)
    yield
    dist.destroy_process_group()


def shown(value):
    detach = getattr(value, "detach", None)
    return repr(detach() if detach else value)


def run(block, names):
    """Execute a block statement by statement; an expression is compared with the comment at its end."""
    code = "\n" * (block.line - 1) + block.code
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(code).readline)
        if token.type == tokenize.COMMENT
    }
    where = f"{name(block.page)}"
    for statement in ast.parse(code).body:
        if not isinstance(statement, ast.Expr):
            exec(compile(ast.Module([statement], []), where, "exec"), names)
            continue
        value = eval(compile(ast.Expression(statement.value), where, "eval"), names)
        comment = comments.get(statement.end_lineno, "")
        if comment.startswith(VALUE) or comment in ("True", "False", "None"):
            assert shown(value) == comment, f"{where}, line {statement.lineno}"


# Libraries warn about themselves here; the library's own warnings are errors in its own tests.
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_the_code_of_a_page_runs(page, monkeypatch, tmp_path, capsys):
    module, command = NEEDS.get(name(page), (None, None))
    if module is not None and importlib.util.find_spec(module) is None:
        pytest.skip(f"this page needs {module}, which is not installed here; {command} runs it")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__page__", **GIVENS.get(name(page), dict)()}
    with one_rank(name(page)):
        for block in blocks(page, "python"):
            run(block, names)


def test_what_is_given_or_needed_is_about_pages_that_exist():
    assert {*GIVENS, *NEEDS} <= {name(page) for page in WITH_CODE}


def test_a_wrong_value_is_seen(tmp_path, monkeypatch):
    page = ROOT / "docs" / "index.md"
    (block, *_) = blocks(page, "python")
    wrong = type(block)(page, block.line, "python", block.code.replace("0.2750", "0.2751"))
    with pytest.raises(AssertionError, match=r"docs/index.md, line \d+"):
        run(wrong, {})
