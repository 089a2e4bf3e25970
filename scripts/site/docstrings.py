"""Python docstrings as Markdown: lines "name: meaning" become a list, and indented code becomes a fence."""

import re
import textwrap
from typing import Any

import griffe

NAMES = r"\*{0,2}[a-z_]\w*(?:, \*{0,2}[a-z_]\w*)*"


def markdown(text: str) -> str:
    out = []
    for paragraph in re.split(r"\n{2,}(?! )", text):
        prose, *code = re.split(r"\n\n(?= )", paragraph)
        if listed := re.search(rf"^{NAMES}: \S", prose, re.M):
            out.append(prose[: listed.start()].strip())
            meanings = prose[listed.start() :].replace("\n", " ")
            parts = re.split(rf"(?:^|(?<=\. ))({NAMES}): ", meanings)[1:]
            out.append("\n".join(f"- `{name}`: {meaning}" for name, meaning in zip(parts[::2], parts[1::2])))
        else:
            out.append(prose)
        if code:
            out.append("```python\n" + textwrap.dedent("\n\n".join(code)) + "\n```")
    return "\n\n".join(part for part in out if part)


class Docstrings(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = markdown(obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        self.on_object(obj=pkg)
