#!/usr/bin/env python3
"""doxygen_filter HEADER: the header with its comments as Doxygen wants them, and with as many lines.

Our comments are plain: above a declaration or behind it. Doxygen reads the first as `///`, the second as `///<`.
"""

import re
import sys


def escaped(text):
    """A comment's text in Markdown, without what Doxygen takes for commands, tags or links."""
    code = text.split("`")
    for i in range(0, len(code), 2):
        code[i] = re.sub(r"([\\@#%<>])", r"\\\1", code[i]).replace("::", "\\::")
    return "`".join(code)


def marked(lines, marker):
    """Lines of one comment. Lines that are indented below a paragraph are code, shown as they are."""
    out, code, item = [], False, False
    for i, line in enumerate(lines):
        indented = line.startswith("  ") and not item
        if indented and not code:
            line, code = "\\verbatim " + line, True
        elif code and not indented and line.strip():
            out[-1] += " \\endverbatim"
            code = False
        if not code:
            item = bool(re.match(r" ?(?:[-*]|\d+\.) ", line)) or (item and bool(line.strip()))
            line = escaped(line)
        out.append(line)
    if code:
        out[-1] += " \\endverbatim"
    return [f"{marker} {line}".rstrip() if line else marker for line in out]


def comment_at(line):
    """Where a line's comment begins, outside of strings; -1: it has none."""
    plain = re.sub(r'"(?:\\.|[^"\\])*"', lambda s: "x" * len(s[0]), line)
    places = [at for at in (plain.find("//"), plain.find("/*")) if at >= 0]
    return min(places, default=-1)


def filtered(text):
    lines = text.split("\n")
    out, i, first = [], 0, True
    while i < len(lines):
        at = comment_at(lines[i])
        directive = lines[i].lstrip().startswith("#") and not lines[i].startswith("#define")
        if at < 0 or directive or "SPDX" in lines[i] or lines[i].endswith("\\"):
            out.append(lines[i])
            i += 1
            continue
        before, j = lines[i][:at], i + 1
        if lines[i][at : at + 2] == "/*":
            block = [lines[i][at + 2 :]]
            while "*/" not in block[-1] and j < len(lines):
                block.append(lines[j])
                j += 1
            block[-1], after = block[-1].split("*/", 1)
            if after.strip():  # inside of a declaration
                out.extend(lines[i:j])
                i = j
                continue
            body = [block[0].strip()] + [re.sub(r"^\s*\*? ?", "", line).rstrip() for line in block[1:]]
        else:
            body = [lines[i][at + 2 :].removeprefix(" ")]
            while j < len(lines) and lines[j].strip().startswith("//") and lines[j].find("//") == at:
                body.append(lines[j].strip()[2:].removeprefix(" "))
                j += 1
        if first and (named := re.match(r"tessera/\S+ - ", body[0])):
            body[0] = body[0][named.end() :]
            shown = marked(body, "///")
            shown[0] = "/// \\file\n" + shown[0]
            first = False
        elif j < len(lines) and lines[j].startswith("namespace "):  # all headers share the namespaces
            out.extend(lines[i:j])
            i = j
            continue
        else:
            shown = marked(body, "///<" if before.strip() else "///")
        indent = before if not before.strip() else " " * at
        out.append(before + shown[0])
        out.extend(indent + line for line in shown[1:])
        i = j
    return "\n".join(out)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as header:
        sys.stdout.write(filtered(header.read()))
