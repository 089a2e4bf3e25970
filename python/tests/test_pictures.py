"""Plans, steps and runs as pictures in notebooks: the pages that their frames hold."""

import html
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

import tessera
from tessera._pictures import training_picture

TABLES = [tessera.EmbeddingBagConfig(6, 4, "a"), tessera.EmbeddingBagConfig(4, 2, "<b>")]
RUN = {
    "steps": 1000, "first_step": 5, "train": {"samples": 9, "samples_per_s": 4.5, "seconds": 2.0},
    "stages": {"read": {"us_per_step": 10.0}, "lookup": {"us_per_step": 30.0}},
    "test": {"samples": 9, "auc": 0.75, "seconds": 1.0}, "losses": [1.0] * 500 + [0.5] * 500,
}  # fmt: skip


def page_of(picture):
    """The page inside of a picture."""
    frame = re.fullmatch(r'<iframe title="[^"]*" style="[^"]*" srcdoc="([^"]*)"></iframe>', picture)
    return html.unescape(frame[1])


def parts_of(picture):
    page = page_of(picture)
    assert 'src="' not in page and 'href="' not in page and "default-src 'none'" in page
    return json.loads(re.search(r'id="data">\n(.*)\n</script>', page)[1])["parts"]


def drawn(picture, folder):
    """The page as a browser draws it."""
    browser = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if not browser:
        pytest.skip("no chromium here: scripts/install_packages brings chromium-headless-shell")
    (folder / "page.html").write_text(f"<!DOCTYPE html><body>{picture}<script>onload = () => {{"
                                      "const frame = document.querySelector('iframe').contentWindow;"
                                      "document.title = frame.frameElement.style.height;"
                                      "document.body.innerHTML = frame.document.querySelector('main').innerHTML;"
                                      "}</script>")  # fmt: skip
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom"]
    command = [browser, *options, f"--user-data-dir={folder}/profile", f"file://{folder}/page.html"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_a_plan_is_a_page(tmp_path):
    cut = {"a": tessera.row_wise(), "<b>": tessera.table_wise(1)}
    plan = tessera.plan(TABLES, tessera.Planner(world_size=2, shardings=cut))
    assert parts_of(plan._repr_html_()) == [{"plan": plan.to_dict()}]
    page = drawn(plan._repr_html_(), tmp_path)
    assert "<figcaption>Values on each rank</figcaption>" in page and "<canvas" in page
    assert '<td class="">a</td><td class="number">6</td><td class="number">4</td>' in page
    assert '<td class="">&lt;b&gt;</td>' in page and "0, 1" in page


def test_what_steps_took_and_sent(tmp_path):
    tables = tessera.EmbeddingBagCollection(TABLES, optimizer=tessera.Optimizer("exact_sgd", learning_rate=0.1))
    assert tables.stats()["steps"] == 0 and "steps" in parts_of(tables.stats()._repr_html_())[0]
    for _ in range(3):
        step = tables.forward([1, 2, 3], [2, 1])
        step.backward(np.ones_like(step.output))
    stats = tables.stats(restart=True)
    assert (stats["steps"], stats["updates"], stats["rank"], stats["world_size"]) == (3, 3, 0, 1)
    assert stats["tables"]["a"]["lookups"] == 6 and stats["tables"]["a"]["weight_bytes"] >= 6 * 4 * 4
    assert stats["stages"]["lookup"] > 0 and stats["stages"]["table update"] > 0
    assert parts_of(stats._repr_html_()) == [{"steps": stats}]
    page = drawn(stats._repr_html_(), tmp_path)
    assert "<b>3</b><span>steps</span>" in page and "Time of a step by stage" in page and "<td" in page
    assert re.search(r"<title>\d+px</title>", page), "the frame is as tall as its page"
    again = tables.stats()
    assert again["steps"] == 0 and sum(again["stages"].values()) == 0 and again["updates"] == 3


def test_a_run_shows_its_losses(tmp_path):
    (part,) = parts_of(training_picture(RUN))
    assert part["run"]["losses_each"] == 2 and part["run"]["losses"] == [1.0] * 250 + [0.5] * 250
    page = drawn(training_picture(RUN), tmp_path)
    assert "<b>0.75</b><span>test AUC</span>" in page and "Training loss" in page
    assert "<b>1000 steps</b>" not in page and "<b>2 s</b><span>1000 steps</span>" in page


def test_without_the_page_there_is_no_picture(monkeypatch, tmp_path):
    monkeypatch.setattr("tessera._pictures.home", lambda: str(tmp_path / "lib"))
    assert training_picture(RUN) is None
