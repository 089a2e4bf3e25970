"""The hook of MkDocs that makes the site of pages that a code host shows as well.

Pages keep the paths that they have in the repository, so that links between them need no change. The navigation is read
from the tables of docs/README.md. A link to any other file of the repository leads to its page of the C and C++
reference, to the address that scripts/docs --source names, or nowhere: then it is plain text.
"""

import ast
import posixpath
import re
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
INDEX = "docs/README.md"
STYLE = "scripts/site/style.css"
SHELVES = ["Tutorials", "How-to guides", "Reference", "Explanation"]
CPP = ROOT / "build/docs-cpp"  # scripts/docs lets Doxygen write there
HEADERS = "core/include/tessera"
LINK = re.compile(
    r"^[ ]*```.*?^[ ]*```|(?<!`)`[^`]+`(?!`)|(?P<reference>\]\[)"
    r"|(?P<image>!?)\[(?P<text>(?:`[^`]*`|[^\[\]`])*)\]\((?P<target>[^)\s]+)\)",
    re.M | re.S,
)


def shelves(root=ROOT):
    """[(shelf, [(title, path), (group, [(title, path), ...]), ...])] of docs/README.md's headings and tables."""
    out = []
    for line in (root / INDEX).read_text().splitlines():
        if line.startswith("## "):
            out.append((line[3:], []))
            rows = out[-1][1]
        elif line.startswith("### "):
            rows = []
            out[-1][1].append((line[4:], rows))
        elif line.startswith("| [") and out:
            for title, target in re.findall(r"\[([^\]]+)\]\(([^)#]+)\)", line.split(" | ")[0]):
                rows.append((title, posixpath.normpath(posixpath.join("docs", target))))
    return out


def paths_of(rows):
    return [path for _, item in rows for path in ([item] if isinstance(item, str) else paths_of(item))]


def misplaced(root=ROOT):
    """Sentences about pages of docs/ that are not on exactly one of the four shelves."""
    found = shelves(root)
    if [name for name, _ in found][: len(SHELVES)] != SHELVES:
        return [f"{INDEX} begins with other shelves than {', '.join(SHELVES)}"]
    listed = [path for name, rows in found if name in SHELVES for path in paths_of(rows)]
    pages = [f"docs/{page.name}" for page in sorted((root / "docs").glob("*.md")) if page.name != "README.md"]
    return [f"{page} is {listed.count(page)} times on a shelf of {INDEX}" for page in pages if listed.count(page) != 1]


def imported(package, level=1):
    """{module: [name, ...]} of the public names that a package's __init__.py imports from its modules."""
    out = {}
    for node in ast.walk(ast.parse((ROOT / "python/src" / package / "__init__.py").read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == level and node.module:
            names = [alias.asname or alias.name for alias in node.names]
            out.setdefault(node.module, []).extend(name for name in names if not name.startswith("_"))
    return {module: names for module, names in out.items() if names}


def python_page(title, package, text):
    dotted = package.replace("/", ".")
    options = ["show_root_heading: false", "show_root_toc_entry: false", "members: false"]
    introduction = "\n      ".join([f"::: {dotted}\n    options:", *options])
    parts = [f"# {title}", text, introduction]
    modules = imported(package)
    modules["_library"] = modules.pop("_library", [])  # errors come last
    return "\n\n".join(parts + [f"::: {dotted}.{name}" for names in modules.values() for name in names])


def doxygen_pages():
    """{"core/include/tessera/tensor.h": "tensor_8h.html", ...}; empty without Doxygen's output."""
    tags = CPP / "tags.xml"
    if not tags.exists():
        return {}
    files = ElementTree.parse(tags).getroot().iterfind("compound[@kind='file']")
    headers = {Path(f.findtext("path"), f.findtext("name")): f.findtext("filename") for f in files}
    return {header.relative_to(ROOT).as_posix(): page for header, page in headers.items()}


def headers_page():
    """A page with every header and the first sentence that it says of itself."""
    groups = {
        "C": ["tessera.h", "infer.h"],
        "C++": ["*.h"],
        "The contract with plugins (C)": ["abi/*.h"],
        "Drafts of the contract (C)": ["abi/draft/*.h"],
        "The SDK for plugins (C++)": ["sdk/*.h", "sdk/draft/*.h"],
    }
    known, done = doxygen_pages(), set()
    out = ["# C and C++ headers", "Each header introduces itself, with its errors, its owners and its threads."]
    if known:
        out.append("The [index of all classes and functions](cpp/index.html) has a search of its own.")
    for group, patterns in groups.items():
        out.append(f"## {group}\n\n| Header | Subject |\n| --- | --- |")
        for header in sorted(h for pattern in patterns for h in (ROOT / HEADERS).glob(pattern) if h not in done):
            done.add(header)
            name = str(header.relative_to(ROOT / "core/include"))
            page = known.get(f"core/include/{name}")
            about = re.search(re.escape(name) + r" - (.*?)(?:(?<!et al)[.:]\s|\n\W*\n)", header.read_text(), re.S)
            words = " ".join(re.sub(r"\n\s*(?://|\*)", " ", about[1]).split()) if about else ""
            link = f"[`{name}`](cpp/{page})" if page else f"`{name}`"
            out[-1] += f"\n| {link} | {words.replace('|', chr(92) + '|').replace('<', '&lt;')} |"
    return "\n\n".join(out) + "\n"


GENERATED = {
    "reference/python.md": lambda: python_page(
        "Python API", "tessera", "[Tessera from Python](../docs/python.md) shows how these are used."
    ),
    "reference/torch.md": lambda: python_page(
        "PyTorch API", "tessera/torch", "[Tessera from Python](../docs/python.md#pytorch) shows how these are used."
    ),
    "reference/headers.md": headers_page,
}


def on_config(config):
    from markdown.extensions import Extension
    from mkdocs.exceptions import PluginError

    class TwoSpaces(Extension):
        """What belongs to an item of a list is indented by two spaces, as on code hosts, and not by four."""

        def extendMarkdown(self, md):
            md.tab_length = 2
            md.build_parser()

    if problems := misplaced():
        raise PluginError("; ".join(problems))

    def nav(rows):
        return [{title: item if isinstance(item, str) else nav(item)} for title, item in rows]

    config.nav = [{"Home": ["README.md", {"All pages": INDEX}]}] + nav(shelves())
    names = {"reference/python.md": "Python API", "reference/torch.md": "PyTorch API"}
    apis = [{names.get(uri, "C and C++ headers"): uri} for uri in GENERATED]
    next(item for item in config.nav if "Reference" in item)["Reference"][0:0] = [{"APIs": apis}]
    config.markdown_extensions.insert(0, TwoSpaces())
    return config


def on_files(files, config):
    from mkdocs.structure.files import File

    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
    sources = ["README.md", INDEX, *(path for _, rows in shelves() for path in paths_of(rows)), STYLE]
    sources += [str(picture.relative_to(ROOT)) for picture in (ROOT / "docs").rglob("*.svg")]
    for uri in sources:
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / uri)))
    for path in sorted(p for p in (CPP / "html").rglob("*") if p.is_file()):
        uri = "reference/cpp/" + path.relative_to(CPP / "html").as_posix()
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    for uri, make in GENERATED.items():
        files.append(File.generated(config, uri, content=make()))
    return files


def blank_lines(markdown):
    """A list right below a paragraph gets the empty line between them that Python's Markdown wants."""
    out, fenced = [], False
    item = re.compile(r" {0,3}(?:[-*] |\d+\. )")
    for line in markdown.split("\n"):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and item.match(line) and out and re.match(r" ?\S", out[-1]) and not item.match(out[-1]):
            out.append("")
        out.append(line)
    return "\n".join(out)


def on_page_markdown(markdown, page, config, files):
    here = posixpath.dirname(page.file.src_uri)
    headers = doxygen_pages()

    def rewritten(found):
        if found["reference"]:  # [n][rank] is no link
            return r"]\["
        target = found["target"]
        if target is None or found["image"] or "://" in target or target.startswith(("#", "mailto:")):
            return found[0]
        path = posixpath.normpath(posixpath.join(here, target.split("#")[0]))
        if files.get_file_from_path(path) or not (ROOT / path).exists():
            return found[0]
        text = found["text"]
        if path in headers:
            return f"[{text}]({posixpath.relpath('reference/cpp/' + headers[path], here or '.')})"
        if config.extra["source"]:
            return f"[{text}]({config.extra['source'].rstrip('/')}/{path})"
        return text if text.strip("`") == path else f"{text} (`{path}`)"

    return LINK.sub(rewritten, blank_lines(markdown))
