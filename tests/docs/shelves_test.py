"""shelves_test.py ROOT: every page of docs/ is on exactly one shelf of docs/README.md, as the site has them."""

import sys
import tempfile
from pathlib import Path

root = Path(sys.argv[1])
sys.path.insert(0, str(root / "scripts/site"))
import hook  # noqa: E402

problems = hook.misplaced(root)
assert not problems, "\n".join(problems)

with tempfile.TemporaryDirectory() as folder:
    docs = Path(folder, "docs")
    docs.mkdir()
    rows = {"Tutorials": "a", "How-to guides": "b", "Reference": "a", "Explanation": "c"}
    index = "\n".join(f"## {shelf}\n\n| [Page]({page}.md) | readers |" for shelf, page in rows.items())
    (docs / "README.md").write_text(index)
    for page in "abcd":
        (docs / f"{page}.md").write_text("# Page\n")
    found = hook.misplaced(Path(folder))
    assert [line.split(" on ")[0] for line in found] == ["docs/a.md is 2 times", "docs/d.md is 0 times"], found
