"""ten_minutes.py PREFIX DOCS WORK: does what every page DOCS/*_in_ten_minutes.md says, one after the other.

PREFIX is an installed Tessera, WORK a folder that is made anew: the home in which the pages find ~/tessera. Of each
page the C++ blocks together have to be the source that `tessera new` writes, the TOML block is job.toml, and the shell
blocks are run in their order. Plugins are left in WORK/KIND/*/build.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.M | re.S)


def follow(page, folder, environment):
    text = page.read_text()
    folder.mkdir()
    for job in blocks(text, "toml"):
        (folder / "job.toml").write_text(job)
    script = folder / "page.sh"
    script.write_text("set -euo pipefail\n" + "\n".join(blocks(text, "sh")))
    done = subprocess.run(["bash", script], cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        return f"{page.name}: its shell blocks end with status {done.returncode}\n{done.stdout}{done.stderr}"
    shown = "\n".join(blocks(text, "cpp"))
    (written,) = folder.glob("*/*.cc")
    if shown != written.read_text():
        (folder / "shown.cc").write_text(shown)
        difference = subprocess.run(["diff", written, folder / "shown.cc"], capture_output=True, text=True).stdout
        return f"{page.name} shows other code than tessera new writes:\n{difference}"
    if not re.search(r"^test: AUC \d", done.stdout, flags=re.M):
        return f"{page.name}: nothing was trained\n{done.stdout}"
    return None


def main():
    prefix, docs, work = (Path(argument).resolve() for argument in sys.argv[1:4])
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (work / "tessera").symlink_to(prefix)
    pages = sorted(docs.glob("*_in_ten_minutes.md"))
    if len(pages) < 7:
        sys.exit(f"{docs} has {len(pages)} pages, but there are 7 kinds of plugins that tessera new writes")
    for page in pages:
        fault = follow(page, work / page.name.split("_")[0], os.environ | {"HOME": str(work)})
        if fault:
            sys.exit(fault)
        print(page.name, "does what it says")


main()
