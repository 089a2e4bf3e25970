"""python -m tessera: the program `tessera`."""

import os
import sys

from ._library import home

program = home() / "bin" / "tessera"
if not program.exists():
    sys.exit(f"python -m tessera: there is no program at {program}")
os.execv(program, [str(program), *sys.argv[1:]])
