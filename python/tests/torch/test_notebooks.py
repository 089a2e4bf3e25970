"""The notebooks of python/examples: their code cells, one after the other, as one program."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def code_of(notebook):
    cells = json.loads(notebook.read_text())["cells"]
    assert all(not cell.get("outputs") for cell in cells), "notebooks are kept without outputs"
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


@pytest.mark.parametrize("name, says", [("introduction", "right answers"), ("sharding", "all equal")])
def test_notebooks_run(name, says, tmp_path):
    if name == "sharding":
        pytest.importorskip("cloudpickle")
    program = tmp_path / "program.py"
    program.write_text(code_of(EXAMPLES / f"{name}.ipynb"))
    told = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=280)
    assert told.returncode == 0 and says in told.stdout, told.stdout + told.stderr
