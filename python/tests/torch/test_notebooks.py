"""The notebooks of python/examples: their code cells, one after the other, as one program, and what cells show."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


SHOW = """
def _show(value):
    picture = getattr(value, "_repr_html_", None)
    if picture is not None:
        print("shown:", picture())


"""


def code_of(notebook):
    cells = json.loads(notebook.read_text())["cells"]
    assert all(not cell.get("outputs") for cell in cells), "notebooks are kept without outputs"
    return SHOW + "\n\n".join(shown("".join(cell["source"])) for cell in cells if cell["cell_type"] == "code")


def shown(cell):
    """The value of a cell's last expression is shown, as in a notebook."""
    tree = ast.parse(cell)
    last = tree.body[-1]
    if isinstance(last, ast.Expr):
        last.value = ast.Call(ast.Name("_show", ast.Load()), [last.value], [])
    return ast.unparse(ast.fix_missing_locations(tree))


@pytest.mark.parametrize(
    "name, says, pictures",
    [
        ("introduction", "right answers", ["&quot;steps&quot;: 101"]),
        ("sharding", "all equal", ["&quot;name&quot;: &quot;film&quot;", "&quot;steps&quot;: 3"]),
    ],
)
def test_notebooks_run(name, says, pictures, tmp_path):
    if name == "sharding":
        pytest.importorskip("cloudpickle")
    program = tmp_path / "program.py"
    program.write_text(code_of(EXAMPLES / f"{name}.ipynb"))
    told = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=280)
    assert told.returncode == 0 and says in told.stdout, told.stdout + told.stderr
    drawn = told.stdout.split("shown: <iframe ")[1:]
    assert len(drawn) == len(pictures)
    for picture, words in zip(drawn, pictures):
        assert words in picture
