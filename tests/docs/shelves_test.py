"""shelves_test.py ROOT: every page of docs/ is on exactly one shelf of docs/README.md, and links to parts of pages lead
somewhere, as the site has them."""

import re
import sys
import tempfile
from pathlib import Path

root = Path(sys.argv[1])
sys.path.insert(0, str(root / "scripts/site"))
import hook  # noqa: E402

problems = hook.misplaced(root)
assert not problems, "\n".join(problems)


def without_code(text):
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S)


def anchors(text):
    """The anchors that code hosts and the site give to a page's headings."""
    headings = re.findall(r"^#+ +(.+?) *$", without_code(text), re.M)
    texts = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", text).lower().replace(" ", "-") for text in texts}


def lost_anchors(folder):
    listed = [path for _, rows in hook.shelves(folder) for path in hook.paths_of(rows)]
    for page in sorted({folder / path for path in ["README.md", hook.INDEX, *listed] if (folder / path).exists()}):
        for target, anchor in re.findall(r"\]\(([^)\s#:]*)#([^)\s]+)\)", without_code(page.read_text())):
            other = (page.parent / target) if target else page
            if other.suffix == ".md" and anchor not in anchors(other.read_text()):
                yield f"{page.relative_to(folder)} links to {target}#{anchor}, which is no heading"


problems = list(lost_anchors(root))
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
    (docs / "a.md").write_text("# Page\n\n## `b`: what *is* there\n\n[there](#b-what-is-there) [not](a.md#lost)\n")
    found = list(lost_anchors(Path(folder)))
    assert found == ["docs/a.md links to a.md#lost, which is no heading"], found
