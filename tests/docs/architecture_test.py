"""architecture_test.py ROOT: every code name, file and folder in backticks in ARCHITECTURE.md exists, and the functions
of its four paths are in the files that it names for them."""

import re
import sys
from pathlib import Path

root = Path(sys.argv[1])
CODE = ("core", "apps", "plugins", "kernels_cpu", "kernels_cuda", "kernels_hip", "sharding_strategies")
OTHERS = ("configs", "docs", "python", "scripts", "tests")
DECLARED = r"\b(?:class|struct|enum|union|using|namespace|concept|define) +((?:[\w \[\]]|::|alignas\(\w+\))+)"


def tree():
    """Returns the files and folders of the repository, relative to ROOT, without build outputs."""
    found, left = [], [root / folder for folder in (*CODE, *OTHERS)]
    while left:
        path = left.pop()
        if path.name.startswith((".", "__pycache__", "build")):
            continue
        found.append(path.relative_to(root).as_posix())
        if path.is_dir():
            left.extend(path.iterdir())
    return found


paths = tree()
path_ends = "\n".join(f"/{path}" for path in paths) + "\n"
sources = [path for path in paths if path.startswith(CODE) and path.endswith((".h", ".cc", ".cu"))]
texts = [re.sub(r"//.*", "", (root / path).read_text()) for path in sources]
types = [set(re.findall(r"\w+", " ".join(re.findall(DECLARED, text)))) for text in texts]
calls = [set(re.findall(r"(\w+)\(", text)) for text in texts]
words = set(re.findall(r"\w+", "\n".join(texts)))


def exists(name):
    """True if the tree has a path with this end, or the code declares this type, namespace, macro or function. Other
    names are values, such as options, whose words the code must contain."""
    if "/" in name or re.search(r"\.(cc|h|md|toml|py)$", name):
        end = re.escape("/" + name.rstrip("/")).replace("NAME", r"[^/\n]+") + "\n"
        return re.search(end, path_ends) is not None
    *scopes, last = name.split("::")
    if last.endswith("()"):
        return any(last[:-2] in called and declared.issuperset(scopes) for called, declared in zip(calls, types))
    if scopes or re.fullmatch(r"[A-Z]+[a-z]\w*", last):
        return any(declared.issuperset((*scopes, last)) for declared in types) or exists(f"{name}()")
    return words.issuperset(re.findall(r"\w+", re.sub(r"-N\b", "", name)))


def missing(page):
    """Returns the names in backticks of a page that do not exist."""
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.M | re.S)
    return [name for name in dict.fromkeys(re.findall(r"`([^`\n]+)`", prose)) if not exists(name)]


page = (root / "ARCHITECTURE.md").read_text()
problems = [f"ARCHITECTURE.md: `{name}` does not exist" for name in missing(page)]
assert not problems, "\n".join(problems)

for steps in page.split("## Four paths")[1].split("\n## ")[0].split("\n\n**")[1:]:
    named = re.findall(r"`([\w/]+\.)(?:cc|h)`", steps)
    folders = [root / folder for folder in ("core/src", "apps/tessera", "core/include")]
    files = [folder / (stem + end) for folder in folders for stem in named for end in ("cc", "h")]
    text = "\n".join(path.read_text() for path in files if path.exists())
    for name in re.findall(r"`(?:\w+::)*(\w+)\(\)`", steps):
        assert re.search(rf"\b{name}\b", text), f"ARCHITECTURE.md: {name}() is in no file of its list:\n{steps}"

listed = re.findall(r"^\| `(\w+)` \|", page.split("| Folder of `core/src` |")[1], flags=re.M)
folders = sorted(path.name for path in (root / "core/src").iterdir() if path.is_dir())
assert sorted(listed) == folders, f"ARCHITECTURE.md lists {sorted(listed)}, and core/src has {folders}"

there = ["Runtime", "Runtime::create()", "wiring/", "sharding_strategies/NAME/", "use_index_dedup"]
gone = ["NoSuch", "Runtime::no_such()", "NoSuch::create()", "no_such()", "core/src/no_such/", "no_such.cc", "unheardof"]
assert missing(" ".join(f"`{name}`" for name in [*there, *gone])) == gone
