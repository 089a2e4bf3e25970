#!/usr/bin/env python3
"""Draws architecture.svg, and speed.svg from the figures of speed.json, beside this file. Needs Python alone."""

import json
import math
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
STYLE = """<style>
text { font: 14px system-ui, sans-serif; fill: #1f2328 } .small { font-size: 12px; fill: #59636e }
.head { font-weight: 600 } .box { fill: #f6f8fa; stroke: #8c959f } .ours { fill: #2f6f9f }
.arrow { stroke: #59636e; fill: none; marker-end: url(#tip) } .tip { fill: #59636e }
@media (prefers-color-scheme: dark) {
 text { fill: #e6edf3 } .small { fill: #9198a1 } .box { fill: #161b22; stroke: #6e7681 } .ours { fill: #6cb6e8 }
 .arrow { stroke: #9198a1 } .tip { fill: #9198a1 } }
</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">
<path class="tip" d="M0,0 L8,4 L0,8 z"/></marker></defs>"""


def page(name, width, height, title, body):
    text = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img">\n<title>{escape(title)}</title>\n{STYLE}\n')
    (HERE / name).write_text(text + "\n".join(body) + "\n</svg>\n", encoding="utf-8")


def text(x, y, words, kind="", anchor="start"):
    return f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">\n{escape(words)}</text>'


def box(x, y, width, height, head, lines):
    out = [f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" class="box"/>',
           text(x + width / 2, y + 24, head, "head", "middle")]
    return out + [text(x + width / 2, y + 44 + 18 * i, line, "small", "middle") for i, line in enumerate(lines)]


def arrow(x0, y0, x1, y1):
    return f'<path class="arrow" d="M{x0},{y0} L{x1},{y1}"/>'


def architecture():
    body = box(10, 20, 170, 90, "job.toml", ["model, tables,", "data, plugins"])
    body += box(230, 20, 170, 90, "Plan", ["which process holds", "which rows"])
    body += box(450, 20, 260, 90, "Training", ["each process: its share of the", "tables, and the dense layers"])
    body += box(760, 20, 130, 90, "Checkpoint", ["loads on any", "number of ranks"])
    body += box(760, 160, 130, 90, "Server", ["HTTP, gRPC,", "C, Python"])
    body += box(10, 160, 700, 90, "Plugins, found when the program starts",
                ["sharders · lookup kernels (CPU, CUDA, HIP) · optimizers · transports (TCP, MPI, NCCL)",
                 "layers · readers (CSV, Parquet, Kafka) · metrics · endpoints · your own"])
    body += [arrow(180, 65, 228, 65), arrow(400, 65, 448, 65), arrow(710, 65, 758, 65), arrow(825, 110, 825, 158),
             arrow(315, 160, 315, 112), arrow(580, 160, 580, 112)]
    page("architecture.svg", 900, 270, "A job becomes a plan, training, a checkpoint and a server", body)


def speed():
    data = json.loads((HERE / "speed.json").read_text(encoding="utf-8"))
    left, width, row = 330, 430, 30
    most = math.log(max(bar["ratio"] for bar in data["bars"]))
    body = [text(10, 24, data["title"], "head")]
    for i, bar in enumerate(data["bars"]):
        y = 44 + row * i
        length = width * math.log(bar["ratio"]) / most
        body += [text(left - 10, y + 15, bar["name"], "", "end"),
                 f'<rect x="{left}" y="{y}" width="{length:.1f}" height="20" rx="3" class="ours"/>',
                 text(left + length + 8, y + 15, f'{bar["ratio"]:g} × {bar["peer"]}')]
    end = 44 + row * len(data["bars"])
    body.append(text(left, end + 16, f'Logarithmic scale from 1. {data["source"]}', "small"))
    page("speed.svg", 960, end + 30, data["title"], body)


if __name__ == "__main__":
    architecture()
    speed()
