"""Pictures for notebooks: SVG inside of HTML, of plans, steps and training runs. No library, no script, for light and
dark screens."""

from __future__ import annotations

from html import escape
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

_WIDTH = 680
_FONT = 'font-family="sans-serif" font-size="12" fill="currentColor"'
_MOST_POINTS = 400

# A shard: the ranks that have it, and its part of the table: (row, rows, column, columns).
Piece = Tuple[Tuple[int, ...], Tuple[int, int, int, int]]


def _colour(ranks: Sequence[int]) -> str:
    """The colour of a rank, spread over the circle; grey for several ranks."""
    return f"hsl({137 * ranks[0] % 360},60%,70%)" if len(ranks) == 1 else "hsl(0,0%,75%)"


def _text(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" {more}{_FONT}>{escape(words)}</text>'


def _box(x: float, y: float, width: float, height: float, fill: str, title: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height:.1f}" fill="{fill}" '
        f'stroke="black" stroke-width="0.5"><title>{escape(title)}</title></rect>'
    )


def _svg(parts: Sequence[str], height: float) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height:.0f}" role="img">'
    return head + "".join(parts) + "</svg>"


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    consecutive = list(ranks) == list(range(ranks[0], ranks[-1] + 1))
    return f"ranks {ranks[0]} to {ranks[-1]}" if consecutive else "ranks " + ", ".join(map(str, ranks))


# ---- plans


def _pieces(table: Mapping[str, Any]) -> List[Piece]:
    """The rectangles of a table, with the ranks that have each. Rows that are dealt out lie one below the other."""
    out: Dict[Tuple[int, int, int, int], List[int]] = {}
    below = 0
    for shard in table["shards"]:
        (row, col), (rows, cols) = shard["offsets"], shard["sizes"]
        if table.get("routed"):
            row, below = below, below + rows
        if rows and cols:
            out.setdefault((row, rows, col, cols), []).append(shard["rank"])
    return [(tuple(sorted(ranks)), where) for where, ranks in out.items()]


def _table_row(name: str, table: Mapping[str, Any], top: float) -> List[str]:
    left, width, height = 250, _WIDTH - 260, 54
    pieces = _pieces(table)
    rows = max((row + count for _, (row, count, _, _) in pieces), default=1)
    cols = max((col + count for _, (_, _, col, count) in pieces), default=1)
    kind = f"{table['sharding_type']}, {table['compute_kernel']}"
    out = [_text(0, top + 22, name, 'font-weight="bold" '), _text(0, top + 40, kind)]
    for ranks, (row, count, col, wide) in pieces:
        x, y, w, h = left + width * col / cols, top + height * row / rows, width * wide / cols, height * count / rows
        last = f"rows {row} to {row + count - 1}, columns {col} to {col + wide - 1}"
        what = f"{count} rows of {wide}" if table.get("routed") else last
        out.append(_box(x, y, w, h, _colour(ranks), f"{name}: {_ranks(ranks)}, {what}"))
        label = f"{_ranks(ranks)}: {count} × {wide}"
        if h >= 13 and w >= 7 * len(label):
            out.append(_text(x + 4, y + h / 2 + 4, label).replace('fill="currentColor"', 'fill="black"'))
    return out


def _rank_rows(held: Mapping[int, int], top: float) -> List[str]:
    """Bars for the values on each rank."""
    most = max([1, *held.values()])
    out = [_text(0, top + 12, "values on each rank", 'font-weight="bold" ')]
    for i, (rank, values) in enumerate(sorted(held.items())):
        y = top + 20 + 20 * i
        label = f"{values:,}".replace(",", " ")
        out.append(_text(0, y + 12, f"rank {rank}"))
        out.append(_box(60, y, 460 * values / most, 15, _colour([rank]), f"rank {rank} holds {label} values"))
        out.append(_text(66 + 460 * values / most, y + 12, label))
    return out


def plan_picture(plan: Mapping[str, Any]) -> str:
    """A box for each table, its pieces where they lie in it and coloured by rank, and what each rank holds."""
    parts: List[str] = []
    held: Dict[int, int] = {rank: 0 for rank in range(plan.get("world_size", 0))}
    top = 4.0
    for module in plan["modules"]:
        for table in module["tables"]:
            parts += _table_row(".".join(p for p in (module["path"], table["name"]) if p), table, top)
            for shard in table["shards"]:
                held[shard["rank"]] = held.get(shard["rank"], 0) + shard["sizes"][0] * shard["sizes"][1]
            top += 64
    parts += _rank_rows(held, top)
    return _svg(parts, top + 24 + 20 * len(held))


# ---- steps


def _bars(seconds: Mapping[str, float], steps: int, top: float) -> Tuple[List[str], float]:
    """Time of each stage in a step, one behind the other as they happen; where the next thing may be drawn."""
    per_step = {name: 1e6 * value / max(1, steps) for name, value in seconds.items() if value > 0}
    total = sum(per_step.values())
    parts = [_text(0, top + 12, f"{total:.0f} us a step, in the mean of {steps}", 'font-weight="bold" ')]
    at = 0.0
    for i, (name, us) in enumerate(per_step.items()):
        y, width = top + 20 + 18 * i, 400 * us / total
        said = f"{name}: {us:.1f} us"
        parts.append(_text(0, y + 12, name))
        parts.append(_box(150 + at, y, width, 14, f"hsl({137 * i % 360},60%,70%)", f"{said}, {100 * us / total:.0f} %"))
        parts.append(_text(160 + at + width, y + 12, f"{us:.1f}"))
        at += width
    return parts, top + 26 + 18 * len(per_step)


def step_picture(stats: Mapping[str, Any]) -> str:
    """Draws ``Collection.stats()``: the stages of a step, and the bytes that this rank has sent."""
    parts, top = _bars(stats["stages"], stats["steps"], 4.0)
    sent = {name: sum(where.values()) for name, where in stats["bytes_sent"].items()}
    words = ", ".join(f"{name} {count:,}".replace(",", " ") for name, count in sent.items() if count)
    parts.append(_text(0, top + 12, f"rank {stats['rank']} of {stats['world_size']} has sent: {words or 'nothing'}"))
    for table, figures in stats["tables"].items():
        top += 18
        size = (figures["weight_bytes"] + figures["state_bytes"]) / 1e6
        parts.append(_text(0, top + 12, f"{table}: {figures['lookups']} ids looked up, {size:.1f} MB"))
    return _svg(parts, top + 24)


# ---- training


def _curve(values: Sequence[float], first: int, top: float) -> List[str]:
    """Losses over the steps, means of so many as a point stands for."""
    width, height, left = _WIDTH - 80, 140, 60
    stride = -(-len(values) // _MOST_POINTS)
    points = [sum(part) / len(part) for part in (values[i : i + stride] for i in range(0, len(values), stride))]
    low, high = min(points), max(points)
    span = (high - low) or 1.0
    line = " ".join(
        f"{left + width * i / max(1, len(points) - 1):.1f},{top + height * (high - p) / span:.1f}"
        for i, p in enumerate(points)
    )
    drawn = f'<polyline points="{line}" fill="none" stroke="hsl(210,70%,50%)" stroke-width="1.5">'
    title = f"<title>loss of steps {first} to {first + len(values) - 1}: {values[0]:.4f}, at the end {values[-1]:.4f}"
    return [
        _text(0, top + 10, f"{high:.4f}"), _text(0, top + height, f"{low:.4f}"), drawn + title + "</title></polyline>",
        _text(left, top + height + 16, f"step {first}"),
        _text(_WIDTH - 20, top + height + 16, f"{first + len(values) - 1}", 'text-anchor="end" '),
    ]  # fmt: skip


def training_picture(report: Mapping[str, Any]) -> str:
    """Draws a report of ``tessera.train``: losses, the stages of a step, and the plan."""
    parts: List[str] = []
    top = 4.0
    tested = report.get("test") or {}
    metrics = ", ".join(f"{k} {v:.4f}" for k, v in tested.items() if isinstance(v, float) and k != "seconds")
    train = report["train"]
    said = f"{report['steps']} steps, {train['samples']} samples, {train['samples_per_s']:.0f} a second"
    parts.append(_text(0, top + 12, said + (f"; test: {metrics}" if metrics else ""), 'font-weight="bold" '))
    top += 24
    losses: Optional[Sequence[float]] = report.get("losses")
    if losses:
        parts += _curve(losses, report.get("first_step", 0), top)
        top += 172
    steps = report["steps"]
    stages = {name: values["us_per_step"] * steps / 1e6 for name, values in report["stages"].items()}
    bars, top = _bars(stages, steps, top)
    parts += bars
    return _svg(parts, top) + ("<br>" + plan_picture(report["plan"]) if report.get("plan") else "")


class Report(Dict[str, Any]):
    """The report of ``tessera.train``, a dict that a notebook shows as a picture.

    model: the model that was trained and saved: ``report.model.predict(frame)``. With ``save_best``, the one that
    validated best."""

    _directory: Optional[str] = None  # of a checkpoint
    _model: Any = None

    @property
    def model(self) -> Any:
        """The trained model for predictions. ``FailedPrecondition`` if it was not saved."""
        from ._library import FailedPrecondition
        from ._model import load_model

        if self._model is None:
            if self._directory is None:
                raise FailedPrecondition(
                    'the model was not saved: tessera.train(..., save="DIRECTORY") keeps it, and report.model answers'
                )
            self._model = load_model(self._directory)
        return self._model

    def __getstate__(self) -> Dict[str, Any]:  # another process opens the model itself
        return {"_directory": self._directory}

    def _repr_html_(self) -> str:
        return training_picture(self)


class StepReport(Dict[str, Any]):
    """The result of ``Collection.stats``, a dict that a notebook shows as a picture."""

    def _repr_html_(self) -> str:
        return step_picture(self)
