"""From a program's rows to scores: tessera.describe, train, and predictions of rows as they are."""

import os
import pickle
import threading
import warnings

import numpy as np
import pytest

import tessera
from tessera._library import home

if not any(p["kind"] == "tessera.module/1" and p["state"] != "unusable" for p in tessera.Runtime.default().plugins()):
    pytest.skip("no plugin here computes dense layers", allow_module_level=True)

has_program = pytest.mark.skipif(
    not os.path.exists(os.path.join(home(), "bin", "tessera")), reason="the program tessera is not built"
)
ROWS = 240
CONFIG = {
    "job": {"seed": 3, "device": "cpu"},
    "model": {"embedding_dim": 4, "bottom_mlp": [8, 4], "top_mlp": [8, 1]},
    "data": {"batch": 16, "epochs": 2, "test": "last", "test_fraction": 0.25},
    "column": [
        {"name": "clicked", "as": "label"},
        {"name": "age", "as": "dense", "missing": 0.5, "transform": ["standardise"]},
        {"name": "user", "as": "ids", "ids": "vocabulary"},
        {"name": "film", "as": "ids", "ids": "hash", "rows": 50},
        {"name": "tags", "as": "ids", "ids": "vocabulary", "separator": ";"},
    ],
}


def columns():
    random = np.random.default_rng(4)
    users = random.integers(0, 20, ROWS)
    return {
        "clicked": (random.random(ROWS) < 0.1 + 0.04 * users).astype(np.int64),
        "age": np.where(np.arange(ROWS) % 7 == 0, np.nan, random.normal(size=ROWS)),
        "user": [f"u{u}" for u in users],
        "film": random.integers(0, 30, ROWS).astype(np.uint64) + np.uint64(2**63),
        "tags": [[f"t{k}" for k in random.integers(0, 6, n)] for n in random.integers(0, 4, ROWS)],
    }


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "run"
    return tessera.train(CONFIG, columns(), save=folder), folder


def test_a_trained_model_scores_rows_as_they_are(saved):
    report, folder = saved
    data, model = columns(), report.model
    assert model.columns == ["age", "user", "film", "tags"]
    (scores,) = model.predict(data).values()
    assert scores.shape == (ROWS,) and scores.dtype == np.float32 and len(set(scores.tolist())) > 50
    tested = ROWS // 4  # the last of them
    clicked, scored = data["clicked"][-tested:], scores[-tested:].astype(float)
    logloss = -np.mean(np.log(np.where(clicked == 1, scored, 1 - scored)))
    assert logloss == pytest.approx(report["test"]["logloss"], abs=1e-4), "what the trainer says of the same rows"
    same = pickle.loads(pickle.dumps(report)).model
    unlabelled = {name: data[name] for name in ("tags", "user", "film", "age")}
    for given in (unlabelled, {**data, "clicked": [None] * ROWS, "further": [object()] * ROWS}):
        np.testing.assert_array_equal(next(iter(same.predict(given).values())), scores)
    halves = ({name: values[part] for name, values in data.items()} for part in (slice(100), slice(100, None)))
    np.testing.assert_array_equal(next(iter(same.predict(halves).values())), scores)
    assert next(iter(same.predict({name: values[:0] for name, values in data.items()}).values())).shape == (0,)


def test_ids_that_are_in_no_vocabulary_are_told(saved):
    model, data = tessera.load_model(saved[1]), columns()
    with pytest.warns(UserWarning, match="user: 100 % of the 240 ids were not in the vocabulary") as warned:
        model.predict({**data, "user": [f"other {i}" for i in range(ROWS)]})
    assert len(warned) == 1 and warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict({**data, "user": ["other", *data["user"][1:]]})


def test_frames_are_scored_in_pieces(saved, monkeypatch):
    pd = pytest.importorskip("pandas")
    model, data = tessera.load_model(saved[1]), columns()
    (expected,) = model.predict(data).values()
    monkeypatch.setattr("tessera._rows._ROWS", 100)
    frame = pd.DataFrame(data)
    shuffled = frame[["tags", "film", "age", "user"]]
    for given in (frame, shuffled, frame.assign(user=frame["user"].astype("category"), extra="x")):
        np.testing.assert_array_equal(next(iter(model.predict(given).values())), expected)
    wrong = frame.astype({"age": object})
    wrong.loc[150, "age"] = "old"
    with pytest.raises(ValueError, match='row 151, column "age": it has text, but .*"old" is not a number'):
        model.predict(wrong)
    pa = pytest.importorskip("pyarrow")
    np.testing.assert_array_equal(next(iter(model.predict(pa.Table.from_pandas(frame)).values())), expected)
    pl = pytest.importorskip("polars")
    np.testing.assert_array_equal(next(iter(model.predict(pl.from_pandas(frame)).values())), expected)


def test_threads_score_rows(saved):
    model, data, got = tessera.load_model(saved[1]), columns(), []
    (expected,) = model.predict(data).values()

    def score():
        got.append(next(iter(model.predict(data).values())))

    threads = [threading.Thread(target=score) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 4 and all((one == expected).all() for one in got)


def test_what_cannot_be_scored_is_a_sentence(saved):
    report, folder = saved
    model, data = report.model, columns()
    without = {name: data[name] for name in ("age", "film")}
    for error, sentence, given in [
        (tessera.NotFound, 'no columns "user", "tags": the model takes age, user, .*, but the data has age, film',
         without),
        (ValueError, "different numbers of rows", {**data, "user": ["u1"]}),
        (ValueError, "an object of type int is not data", 7),
        (ValueError, "not the path of a file", "clicks.csv"),
        (ValueError, 'column "age": .*is not a number', {**data, "age": ["x"] * ROWS}),
        (ValueError, 'column "user".*is not a column', {**data, "user": "u1"}),
    ]:  # fmt: skip
        with pytest.raises(error, match=sentence):
            model.predict(given)
    with pytest.raises(LookupError, match="no packed model"):
        tessera.load_model(folder.parent / "nothing")
    with pytest.raises(RuntimeError, match='not saved: tessera.train.*save="DIRECTORY"'):
        tessera.Report({}).model


FRAME = {
    "clicked": [i % 2 for i in range(200)],
    "price": [i / 8 + 0.25 for i in range(200)],
    "user": [f"user {i % 12}, of {i % 3}" for i in range(200)],
    "zip": [None if i % 9 == 0 else f"0{i % 20}" for i in range(200)],
}


@has_program
def test_a_frame_is_described_and_trained(tmp_path):
    description = tessera.describe(FRAME, label="clicked")
    text = str(description)
    assert '"clicked"' in text and "tessera-describe-" not in text and "path = " not in text
    assert "<pre>" in description._repr_html_()
    description.save(tmp_path / "job.toml")
    with pytest.raises(FileExistsError, match="exists"):
        description.save(tmp_path / "job.toml")
    report = tessera.train(description, FRAME, overrides=["data.epochs=1"], save=tmp_path / "run")
    assert report["steps"] > 0
    (scores,) = report.model.predict({name: FRAME[name][:5] for name in FRAME if name != "clicked"}).values()
    assert scores.shape == (5,)
    tomllib = pytest.importorskip("tomllib")
    assert description.config == tomllib.loads(text) and description.config["column"]
    assert tessera.train(description.config, FRAME, max_steps=1)["steps"] == 1


@has_program
def test_weighted_lists_are_described():
    random = np.random.default_rng(0)
    for most in (3, 1):
        lists = [{int(k): 0.5 for k in random.permutation(9)[:n]} for n in random.integers(0, most + 1, 200)]
        text = str(tessera.describe({"clicked": FRAME["clicked"], "seen": lists}, label="clicked"))
        assert 'name = "seen"' in text and "weighted = true" in text
        assert tessera.train(tessera.describe({"clicked": FRAME["clicked"], "seen": lists}), max_steps=1,
                             data={"clicked": FRAME["clicked"], "seen": lists})["steps"] == 1  # fmt: skip


@has_program
def test_a_file_is_described(tmp_path):
    lines = ["clicked,user", *(f"{i % 2},u{i % 7}" for i in range(100))]
    (tmp_path / "clicks.csv").write_text("\n".join(lines) + "\n")
    text = str(tessera.describe(tmp_path / "clicks.csv", "clicked", rows=50))
    assert str(tmp_path / "clicks.csv") in text
    for error, sentence, use in [
        (LookupError, "nothing.csv", lambda: tessera.describe(tmp_path / "nothing.csv")),
        (LookupError, 'no column "x": it has clicked, price, user, zip', lambda: tessera.describe(FRAME, "x")),
        (ValueError, "label is the name", lambda: tessera.describe(FRAME, 3)),
        (ValueError, "rows is a whole number", lambda: tessera.describe(FRAME, rows=0)),
        (ValueError, "reader needs a path", lambda: tessera.describe(FRAME, reader="csv")),
        (ValueError, "no rows|no columns", lambda: tessera.describe({})),
        (TypeError, "is not data", lambda: tessera.describe(7)),
    ]:
        with pytest.raises(error, match=sentence):
            use()


def test_a_frame_in_a_file_has_the_same_words(tmp_path):
    from tessera._describe import _write_csv

    data = {"a": [2**63 + 1, None], "b": ['x "y"', "p,q"], "c": [[1, 2], []], "e": [True, False]}
    data["d"] = [["u", "v;w"], ["z"]]
    with pytest.warns(UserWarning, match='leaves out column "further": a value of type object'):
        _write_csv(tmp_path / "data.csv", {**data, "further": [object()] * 2}, [])
    assert (tmp_path / "data.csv").read_text().splitlines() == [
        "a,b,c,e,d",
        '9223372036854775809,"x ""y""","[1, 2]",true,"[""u"", ""v;w""]"',
        ',"p,q",[],false,"[""z""]"',
    ]
