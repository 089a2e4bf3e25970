"""program.py LIBRARY NAME: runs programs/NAME.py, which is a program for TorchRec, with TorchRec, or with
tessera.torch as its import says. Only the package's name in its imports is changed, and where EmbOptimType is from if
FBGEMM is not there."""

import importlib.util
import os
import re
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "programs"


def text_of(library, name):
    """The program for a library."""
    text = (FOLDER / f"{name}.py").read_text()
    if library == "torchrec":
        return text
    text = re.sub(r"^import torchrec$", "import tessera.torch as torchrec", text, flags=re.M)
    text = re.sub(r"^from torchrec\b", "from tessera.torch", text, flags=re.M)
    if importlib.util.find_spec("fbgemm_gpu") is None:
        text = text.replace("from fbgemm_gpu.split_embedding_configs import", "from tessera.torch import")
    return text


if __name__ == "__main__":
    sys.path.insert(0, str(FOLDER))
    sys.argv = sys.argv[1:]
    exec(compile(text_of(*sys.argv), sys.argv[1], "exec"), {"__name__": "__main__"})
    sys.stdout.flush()
    os._exit(0)  # threads of PyTorch may end the process by "terminate called" if it winds down under load
