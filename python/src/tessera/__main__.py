"""python -m tessera: the program `tessera`."""

import os
import sys

from ._library import home

program = os.path.join(home(), "bin", "tessera")
if not os.path.exists(program):
    sys.exit(f"python -m tessera: there is no program at {program}")
os.execv(program, [program, *sys.argv[1:]])
