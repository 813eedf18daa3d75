"""The bench as a user meets it: what methods get to see, what is done again, what is told of failures."""

import contextlib
import io
import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from mlflow import MlflowClient
from servers import free_port
from sklearn.metrics import roc_auc_score

from erd import bench, files, methods, progress, tracking
from erd.cli import main
from erd.compute import Workers
from erd.data import ingest as packing
from erd.data.batches import Mixture, Rows
from erd.ensemble import load_net
from erd.methods import SEES, Data, Detector, Method
from erd.tape import Tape
from erd.training import predict

FAST = ["pretrain.epochs=3", "run.runner=serial"]
ROOT = Path(__file__).parents[1]
CONTRACT = {"scenario", "method", "seed", "auroc", "tnr95", "aupr", "seconds", "paper_auroc", "paper_tnr95"}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench.Sending, "flush", lambda self: None)  # each test would fill the database
    return tmp_path


@pytest.fixture
def enter(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Methods of the test's own, beside those there are."""
    own = dict(methods.table())
    monkeypatch.setattr(methods, "table", lambda: own)

    def add(name: str, fit: Callable[[Data], Detector], *sees: str) -> None:
        own[name] = Method(name, "a test", "none", "unsupervised", sees, fit, __name__)

    return add


def brightness(images: Rows) -> torch.Tensor:
    return images.take(torch.arange(len(images))).flatten(1).float().mean(1)


def run(*names: str, seeds: int = 1, overrides: tuple[str, ...] = (), **more: Any) -> list[dict[str, Any]]:
    plan = bench.plan([], names, seeds, overrides=[*FAST, *overrides], **more)
    with Workers(plan.settings.run, len(plan.cells)) as workers:
        return bench.run(plan, bench.side_by_side(workers))


def erd(*words: str) -> tuple[int, str, str]:
    """Exit code, stdout, stderr of a command."""
    fast = [part for setting in FAST for part in ("--set", setting)]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main([*words, *(fast if words[0] == "bench" else [])])
    return code, out.getvalue(), err.getvalue()


# ------------------------------------------------------------------------------------------------ figures


def test_the_command_prints_a_row_a_cell_with_the_true_figures() -> None:
    code, out, _ = erd("bench", "--method", "max-softmax", "--seeds", "2", "--json")
    assert code == 0
    rows = json.loads(out.splitlines()[-1])["rows"]
    assert [(row["scenario"], row["method"], row["seed"]) for row in rows] == [
        ("digits-near", "max-softmax", 0),
        ("digits-near", "max-softmax", 1),
    ]
    for row in rows:
        assert set(row) >= CONTRACT
        folder = bench.RunDir(Path(f"bench/digits-near/seed{row['seed']}"))
        sizes = files.load_json(folder.ingested)["sizes"]
        assert (sizes["train"], sizes["calibration"]) == (450, 0), "as in the paper, which has no calibration set"
        model, snapshots = load_net(folder.pretrained)
        for name, packed in (("batch", folder.batch), ("holdout", folder.holdout)):
            softmax = predict(model, snapshots, Mixture(packing.read(packed).rows()))
            truth = pd.read_parquet(folder.manifest(packed))["truth"] == "novel"
            assert row[f"{name}_auroc"] == pytest.approx(roc_auc_score(truth, 1 - softmax.amax(1).numpy()))
        assert row["auroc"] == row["holdout_auroc"], "where the scenario's row says that the paper evaluates"
        assert row["evaluated_on"] == "holdout"
        assert row["seconds"] > 0
        assert row["error"] is None
    assert rows[0]["auroc"] != rows[1]["auroc"], "a seed is another split"
    for name in ("results.json", "results.md", "results.html"):
        assert (Path("bench") / name).exists()
    assert files.load_json(Path("bench/results.json"))["rows"] == rows


def test_processes_give_the_same_figures_as_one_after_the_other() -> None:
    one = run("max-softmax", seeds=2)
    two = run("max-softmax", seeds=2, overrides=("run.runner=process", "run.workers=2"), root=Path("other"))
    assert [row | {"seconds": 0} for row in one] == [row | {"seconds": 0} for row in two]
    assert one[0]["otherwise"] == {"pretrain.epochs": 3}, "and nothing of how and where it was run"


def test_members_are_trained_once_for_all_that_look_at_them(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("erd", "erd-last", "erd-avg", "erd-entropy", "erd-avg-ema")
    alone = [run(name, root=Path(name))[0] for name in names]
    epochs: list[float] = []
    write = Tape.write

    def counted(tape: Tape, record: dict[str, float], *more: Any) -> None:
        epochs.append(record["epoch"])
        write(tape, record, *more)

    monkeypatch.setattr(Tape, "write", counted)
    together = run(*names)
    settings = bench.place("digits-near", 0).settings.finetune
    assert len(epochs) == (settings.members or 0) * (settings.epochs or 0), "as many as one of them needs"
    assert [row | {"seconds": 0} for row in together] == [row | {"seconds": 0} for row in alone]
    assert not list(Path("bench").rglob("tapes")), "nothing is left of them"
    slowest = max(row["seconds"] for row in alone)
    for row in together:  # also where the members were there already
        assert row["seconds"] > slowest / 4


def test_long_work_says_every_minute_how_far_it_is(
    here: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress, "SAY", 0.01)
    with caplog.at_level("INFO", "erd"):
        run("erd", overrides=("run.runner=process", "pretrain.epochs=30"))
    assert re.search(r"after 0 min at the classifier of digits-near seed 0, epoch \d+ of 30", caplog.text)
    assert re.search(r"after 0 min at digits-near seed 0 erd, epoch \d+ of 20", caplog.text)
    assert not [*here.rglob(".*.progress.json")]


def test_processes_share_members() -> None:
    names = ("erd", "erd-last", "vanilla", "vanilla-disagreement")
    both = run(*names, overrides=("run.runner=process", "run.workers=2"))
    one = run(*names, root=Path("other"))
    assert [row | {"seconds": 0} for row in one] == [row | {"seconds": 0} for row in both]


# ------------------------------------------------------------------------------------------------ fairness


@pytest.mark.parametrize("what", SEES)
def test_a_method_that_reads_what_it_does_not_declare_is_a_failed_row(
    what: str, enter: Callable[..., None], shared: Path
) -> None:
    def peek(data: Data) -> Detector:
        getattr(data, what)
        return Detector(brightness)

    enter("peeking", peek, *(name for name in SEES if name not in (what, "weights", "outliers")))
    enter("honest", lambda data: Detector(brightness))
    peeking, honest = run("peeking", "honest", root=shared)
    assert peeking["error"] == (
        f"method 'peeking' reads `{what}`, which its record does not declare; "
        "add it to `sees`, and the table will say so"
    )
    assert peeking["auroc"] is None
    assert honest["error"] is None
    assert honest["auroc"] is not None


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bench folder in which the classifier is trained once for several tests."""
    return tmp_path_factory.mktemp("shared") / "bench"


def test_a_method_gets_what_it_declares_and_no_hint_of_the_rest(enter: Callable[..., None], shared: Path) -> None:
    seen: list[Data] = []

    def look(data: Data) -> Detector:
        seen.append(data)
        return Detector(brightness)

    enter("nothing", look)
    enter("everything", look, *(name for name in SEES if name != "weights"))
    assert not any(row["error"] for row in run("nothing", "everything", root=shared))
    nothing, everything = seen
    assert not set(SEES) & set(vars(nothing))
    assert not any(isinstance(value, Rows | torch.Tensor | torch.nn.Module) for value in vars(nothing).values())
    assert nothing.settings.data.batch_novel is None, "with it the novel share could be had"
    assert len(nothing.classes) == 5

    folder = bench.RunDir(shared / "digits-near" / "seed0")
    labeled = packing.read(folder.labeled)
    for part, given in (("train", everything.train), ("val", everything.val)):
        assert (given.images.images == labeled.images[labeled._where((part,))]).all(), "and of no other part"
        assert (given.labels == labeled.labels_of(part)).all()
    batch, truth = packing.read(folder.batch).images, pd.read_parquet(folder.manifest(folder.batch))["truth"]
    assert (everything.batch.images == batch).all()
    assert everything.novel_share == (truth == "novel").mean() == 0.5

    def as_set(images: torch.Tensor) -> set[bytes]:
        return {image.numpy().tobytes() for image in images}

    told = everything.novel.take(torch.arange(len(everything.novel)))
    assert as_set(told) < as_set(batch[torch.tensor((truth == "novel").tolist())]), "truly novel ones …"
    assert len(told) == 90, "… and half of them"
    assert len(everything.outliers) <= 541
    assert everything.outliers.images.shape[1:] == (8, 8)
    assert not everything.classifier.training


def test_methods_cannot_disturb_each_other(enter: Callable[..., None], shared: Path) -> None:
    def spoil(data: Data) -> Detector:
        for tensor in data.classifier.state_dict().values():
            tensor.zero_()
        data.train.images.images.zero_()
        return Detector(brightness)

    enter("spoiling", spoil, "classifier", "train")
    before = files.sha256(shared / "digits-near/seed0/pretrained.safetensors") if shared.exists() else None
    alone = run("max-softmax", root=Path("alone"))
    after = run("spoiling", "max-softmax", root=shared)[1]
    assert after["auroc"] == alone[0]["auroc"]
    assert before in (None, files.sha256(shared / "digits-near/seed0/pretrained.safetensors"))


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        (lambda images: torch.full((len(images),), float("nan")), "gives 360 of 360 images a score that is no number"),
        (lambda images: torch.zeros(len(images), 2), r"gives scores of shape \(360, 2\) for 360 images"),
        (lambda images: 1 / 0, "fails with ZeroDivisionError: division by zero; the traceback is in"),
    ],
)
def test_scores_that_are_none_are_a_failed_row(
    scores: Any, words: str, enter: Callable[..., None], shared: Path
) -> None:
    enter("broken", lambda data: Detector(scores))
    [row] = run("broken", root=shared)
    assert re.search(words, row["error"])
    if "traceback" in words:
        assert "1 / 0" in Path(row["error"].rpartition(" ")[2]).read_text()


# ------------------------------------------------------------------------------------------------ once, and again


def test_a_failed_cell_stops_no_other_and_is_tried_again(enter: Callable[..., None]) -> None:
    fits: list[str] = []

    def fit(data: Data) -> Detector:
        fits.append(data.method)
        if data.method == "moody" and fits.count("moody") == 1:
            raise ValueError("not today")
        return Detector(brightness)

    for name in ("moody", "steady"):
        enter(name, fit, "train")
    command = ("bench", "--method", "moody", "--method", "steady", "--seeds", "1", "--json")
    code, out, err = erd(*command)
    assert code == 1
    assert "1 of 2 cells failed, such as digits-near, moody: method 'moody' fails with ValueError: not today" in err
    moody, steady = json.loads(out.splitlines()[-1])["rows"]
    assert (moody["auroc"], steady["error"]) == (None, None)
    assert "failed with 1 of 1 seeds" in Path("bench/results.md").read_text()

    code, out, _ = erd(*command)
    assert code == 0
    assert fits == ["moody", "steady", "moody"], "what was good is kept"
    assert json.loads(out.splitlines()[-1])["rows"][1] == steady
    assert not list(Path("bench").rglob("*.traceback.txt"))


def test_what_changed_is_done_again(enter: Callable[..., None]) -> None:
    fits: list[str] = []

    def fit(data: Data) -> Detector:
        fits.append(data.method)
        return Detector(brightness)

    def done(*names: str, **more: Any) -> list[str]:
        fits.clear()
        run(*names, **more)
        return sorted(fits)

    enter("one", fit)
    enter("two", fit, "train")
    both = ["one", "two"]
    assert done(*both) == both
    assert done(*both, overrides=("run.workers=1",)) == [], "how many processes changes nothing"
    assert done(*both, seeds=2) == both, "the new seed alone"
    assert done(*both, overrides=("finetune.epochs=3",)) == both, "a method may look at the settings"
    assert done(*both, overrides=("data.batch_novel=90",)) == both, "other images"
    Path("bench/digits-near/seed0/results/one.json").unlink()
    assert done(*both, overrides=("data.batch_novel=90",)) == ["one"]
    enter("two", fit, "train", "val")
    assert done(*both, overrides=("data.batch_novel=90",)) == ["two"], "its record is another one"


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], dict[str, str]]]:
    """The code that counts for a method in a new file, after another file was given a new text."""
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    (tmp_path / "mine.py").write_text("from erd.methods._aid import aid\n")

    def counted(file: str, text: str) -> dict[str, str]:
        (tmp_path / file).write_text(text)
        bench._code.cache_clear()
        return bench._code("erd.methods.mine")

    yield counted
    bench._code.cache_clear()


def test_the_code_of_a_method_is_what_it_imports_too_but_no_comments(
    code: Callable[[str, str], dict[str, str]],
) -> None:
    before = code("_aid.py", "from erd import training\ndef aid():\n    return 1\n")
    assert set(before) > {"erd.methods.mine", "erd.methods._aid", "erd.training", "erd.data.batches"}
    assert "erd.methods.erd" not in before, "another method is no part of it"
    commented = '"""Aid."""\nfrom erd import training\ndef aid():\n    """One."""\n    return 1  # one\n'
    assert code("_aid.py", commented) == before
    changed = code("_aid.py", "from erd import training\ndef aid():\n    return 2\n")
    assert {name for name in before if before[name] != changed[name]} == {"erd.methods._aid"}


def test_two_benches_in_one_folder_do_not_meet(enter: Callable[..., None]) -> None:
    def fit(data: Data) -> Detector:
        with pytest.raises(bench.RunError, match="another bench is working in bench/digits-near/seed0"):
            run("outer")
        run("inner", root=Path("elsewhere"))
        return Detector(brightness)

    enter("outer", fit)
    enter("inner", lambda data: Detector(brightness))
    assert run("outer")[0]["error"] is None


def test_a_scenario_without_data_fails_alone(enter: Callable[..., None]) -> None:
    enter("any", lambda data: Detector(brightness))
    plan = bench.plan(["digits-near", "cifar100-near"], ["any"], 1, overrides=FAST)
    with Workers(plan.settings.run, 2) as workers:
        good, bad = bench.run(plan, bench.side_by_side(workers))
    assert good["error"] is None
    assert "cifar100 was not found" in bad["error"]
    code, out, err = erd("bench", "--scenario", "cifar100-near", "--method", "any")
    assert (code, out) == (2, ""), "with nothing to do at all it is one sentence"
    assert err.splitlines()[-1].startswith("erd: cifar100 was not found")


# ------------------------------------------------------------------------------------------------ usage


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--method", "max-softmx"), "unknown method 'max-softmx': did you mean 'max-softmax'?"),
        (("--scenario", "digit-near"), "unknown scenario 'digit-near': did you mean 'digits-near'?"),
        (("--seeds", "0"), "the bench needs one seed or more, not 0"),
        (("--set", "seed=3"), "say how many with --seeds"),
        (("--method", "far-seeing"), "name the file of its weights with --set bench.weights=FILE"),
        (("--set", "bench.weights=none.pt"), "there is no file of weights at none.pt"),
        (("--output", "page.md"), "page.md has no place for the table"),
    ],
)
def test_a_wrong_call_is_one_sentence_and_nothing_is_begun(
    words: tuple[str, ...], said: str, enter: Callable[..., None]
) -> None:
    enter("far-seeing", lambda data: Detector(brightness), "weights")
    Path("page.md").write_text("# No markers here\n")
    code, out, err = erd("bench", *words)
    assert (code, out) == (2, "")
    assert said in err.splitlines()[-1]
    assert not Path("bench").exists()


def test_all_leaves_out_what_needs_weights_until_there_are_some(
    enter: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    enter("far-seeing", lambda data: Detector(brightness), "weights")
    settings = bench.settings_for(overrides=FAST)
    found, skipped = bench.choose([], settings)
    assert "far-seeing" in skipped
    assert {method.name for method in found} == set(methods.table()) - set(skipped)
    Path("weights.pt").touch()
    found, skipped = bench.choose(["all"], settings.override({"bench.weights": "weights.pt"}))
    assert (len(found), skipped) == (len(methods.table()), [])


def test_methods_are_listed() -> None:
    code, out, _ = erd("methods", "--json")
    assert code == 0
    listed = {row["name"]: row for row in json.loads(out)["methods"]}
    assert listed["max-softmax"]["setting"] == "unsupervised"
    assert listed["max-softmax"]["sees"] == ["classifier"]
    _, text, _ = erd("methods")
    assert all(name in text for name in listed)


# ------------------------------------------------------------------------------------------------ docs


def test_the_example_in_the_docs_is_a_whole_method(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [example] = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "extend.md").read_text(), re.DOTALL)
    assert len(example.splitlines()) <= 25
    (here / "nearest_mean.py").write_text(example)
    before = dict(methods.METHODS)
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(here)])
    methods.table.cache_clear()
    try:
        assert "nearest-mean" in methods.table(), "a file is found by itself"
        [row] = run("nearest-mean")
        assert row["error"] is None
        assert row["auroc"] > 0.6
    finally:
        methods.METHODS.clear()
        methods.METHODS.update(before)
        methods.table.cache_clear()


# ------------------------------------------------------------------------------------------------ MLflow


def test_each_cell_is_sent_once_even_if_the_server_was_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    monkeypatch.undo()  # `flush` as it is
    monkeypatch.chdir(request.getfixturevalue("tmp_path"))
    monkeypatch.setattr(bench, "EXPERIMENT", "bench of a test")
    with monkeypatch.context() as away:
        away.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{free_port()}")
        [row] = run("max-softmax")
        assert row["error"] is None
        assert "does not answer; the next bench sends what is missing" in caplog.text
    assert run("max-softmax") == [row]
    assert run("max-softmax") == [row]

    client = MlflowClient(tracking.location())
    experiment = client.get_experiment_by_name("bench of a test")
    assert experiment is not None
    [sent] = client.search_runs([experiment.experiment_id])
    assert (sent.info.run_name, sent.info.status) == ("digits-near seed 0 max-softmax", "FINISHED")
    asked = {"scenario": "digits-near", "method": "max-softmax", "setting": "unsupervised", "seed": "0"}
    assert asked.items() <= sent.data.params.items()
    assert sent.data.params["pretrain.epochs"] == "3"
    assert sent.data.metrics["detection/auroc"] == row["batch_auroc"]
    assert sent.data.metrics["holdout/tnr95"] == row["holdout_tnr95"]
    assert sent.data.metrics["seconds"] == row["seconds"]
    assert sent.data.tags["method"] == "max-softmax"


def test_what_looks_at_anothers_members_begins_after_all_that_train(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "erd"):
        run("erd-avg", "binary", "erd", overrides=("finetune.epochs=2",))
    order = re.findall(r"\d of 3: digits-near seed 0 ([\w-]+)", caplog.text)
    assert order[-1] == "erd-avg"
    assert set(order) == {"erd-avg", "binary", "erd"}


def test_slow_cells_begin_first(enter: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    def fit(data: Data) -> Detector:
        begun.append(data.method)
        return Detector(brightness)

    for name in ("a", "b", "c"):
        enter(name, fit)
    clock = itertools.accumulate([1, 3, 2])  # what a, b and c take, and nothing else
    ticks = iter(np.repeat([0, *clock], 2)[1:].tolist() + [6] * 99)
    with monkeypatch.context() as timed:
        timed.setattr(bench.time, "perf_counter", lambda: next(ticks))
        run("a", "b", "c")
    begun.clear()
    run("a", "b", "c", seeds=2, overrides=("finetune.epochs=2",))
    assert [name for name in begun if name] == ["b", "b", "c", "c", "a", "a"]
