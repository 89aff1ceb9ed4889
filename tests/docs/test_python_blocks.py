"""Every python block of every page runs, in order, and gives what the comment beside it says."""

import ast
import importlib.util
import io
import itertools
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
    if page not in ("docs/large-batches.md", "docs/slices-over-ranks.md"):
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
    """Execute a block statement by statement; an expression is compared with the comment at its end, or below it."""
    code = "\n" * (block.line - 1) + block.code
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(code).readline)
        if token.type == tokenize.COMMENT
    }
    alone = {line: text for line, text in comments.items() if code.splitlines()[line - 1].lstrip().startswith("#")}

    def below(line):
        """What the comments that follow a statement say, as one line."""
        return " ".join(alone[line] for line in itertools.takewhile(alone.__contains__, itertools.count(line + 1)))

    where = f"{name(block.page)}"
    for statement in ast.parse(code).body:
        if not isinstance(statement, ast.Expr):
            exec(compile(ast.Module([statement], []), where, "exec"), names)
            continue
        value = eval(compile(ast.Expression(statement.value), where, "eval"), names)
        comment = comments.get(statement.end_lineno) or below(statement.end_lineno)
        if comment.startswith(VALUE) or comment in ("True", "False", "None"):
            assert " ".join(shown(value).split()) == " ".join(comment.split()), f"{where}, line {statement.lineno}"


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


@pytest.mark.parametrize(("page", "value"), [("index.md", "[0.2750,"), ("edges.md", "tensor([2.,")])
def test_a_wrong_value_is_seen(page, value):
    """Below its line, and at the end of it."""
    (block, *_) = blocks(ROOT / "docs" / page, "python")
    assert value in block.code
    wrong = type(block)(block.page, block.line, "python", block.code.replace(value, value.replace("2", "3")))
    with pytest.raises(AssertionError, match=rf"docs/{page}, line \d+"):
        run(wrong, {})
