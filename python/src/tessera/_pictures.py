"""Pictures for notebooks: the program's pages of plans, steps and training runs, in a frame."""

from __future__ import annotations

from html import escape
from typing import Any, Dict, List, Mapping, Optional

from ._library import home
from ._page import page

_MOST_POINTS = 500


def _frame(title: str, parts: List[Mapping[str, Any]], height: int) -> Optional[str]:
    """Returns a page as a frame of a notebook, separate from the notebook's scripts and styles. The page's script
    corrects the height. Returns None, so that the object is shown as text, if the files for pages are not installed."""
    text = page(home(), title, parts)
    style = f"width:100%;height:{height}px;border:0"
    return text and f'<iframe title="{escape(title)}" style="{style}" srcdoc="{escape(text)}"></iframe>'


def plan_picture(plan: Mapping[str, Any]) -> Optional[str]:
    """Draws a plan: the values of each table on each rank, and the tables."""
    return _frame("Sharding plan", [{"plan": plan}], 700)


def step_picture(stats: Mapping[str, Any]) -> Optional[str]:
    """Draws ``Collection.stats()``: the stages of a step, and the bytes that this rank has sent."""
    return _frame("Steps", [{"steps": stats}], 700)


def training_picture(report: Mapping[str, Any]) -> Optional[str]:
    """Draws a report of ``tessera.train``: metrics, curves, the stages of a step, and the plan."""
    losses = report.get("losses") or []
    each = max(1, -(-len(losses) // _MOST_POINTS))
    parts = [losses[i : i + each] for i in range(0, len(losses), each)]
    means = [sum(part) / len(part) if None not in part else None for part in parts]
    return _frame("Training", [{"run": {**report, "losses": means, "losses_each": each}}], 900)


class Report(Dict[str, Any]):
    """The report of ``tessera.train``, a dict that a notebook shows as a picture.

    model: the model that was trained and saved: ``report.model.predict(frame)``. With ``save_best``, the one that
    validated best."""

    _directory: Optional[str] = None  # directory of a checkpoint
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

    def __getstate__(self) -> Dict[str, Any]:  # a process that unpickles the report opens the model itself
        return {"_directory": self._directory}

    def _repr_html_(self) -> Optional[str]:
        return training_picture(self)


class StepReport(Dict[str, Any]):
    """The result of ``Collection.stats``, a dict that a notebook shows as a picture."""

    def _repr_html_(self) -> Optional[str]:
        return step_picture(self)
