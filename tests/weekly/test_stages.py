"""The stages on the bundled digits: same bytes whatever the runner, reuse that looks at files, and what each leaves."""

import json
import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
from chains import do, small, whole

from erd.base import files, progress
from erd.data import packed
from erd.runs import stage_records
from erd.runs.folder import RunDir
from erd.weekly import chain
from erd.weekly.stages.finetune import member_labels


def weights(run: RunDir) -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in sorted((run.root / "members").glob("*.safetensors"))}
    assert found
    return found


def test_processes_write_the_bytes_of_the_serial_runner(digits_run: RunDir, tmp_path: Path) -> None:
    """One process; tests/flows/test_weekly.py has two."""
    other = whole(tmp_path / "run", "run.runner=process", "run.workers=1")
    assert weights(other) == weights(digits_run)
    for name in ("pretrained.safetensors", "scores.parquet", "metrics.json", "figures/learning_curves.png"):
        mine, theirs = (run.root / name for run in (other, digits_run))
        assert mine.read_bytes() == theirs.read_bytes(), name


def test_another_seed_gives_other_bytes(digits_run: RunDir, tmp_path: Path) -> None:
    other = whole(tmp_path / "run", "seed=1")
    shared = weights(other).keys() & weights(digits_run).keys()
    assert all(weights(other)[name] != weights(digits_run)[name] for name in shared)


def test_only_what_changed_is_made_again(tmp_path: Path) -> None:
    run = whole(tmp_path / "run")
    before = weights(run)

    def again(*more: str) -> dict[str, bool]:
        done = do(small(*more), run, "pretrain", "finetune", "score")
        return {item.stage: item.reused for item in done}

    assert all(again().values())
    first, second, third = sorted(before)
    (run.root / "members" / first).unlink()
    altered = run.root / "members" / second
    altered.write_bytes(altered.read_bytes()[:-1] + b"?")
    reused = again()
    assert weights(run) == before
    assert reused == {
        "pretrain": True,
        f"finetune-{first[0]}": False,
        f"finetune-{second[0]}": False,
        f"finetune-{third[0]}": True,
        "score": True,
    }
    assert [stage for stage, kept in again("finetune.lr=0.01").items() if kept] == ["pretrain"]
    again()
    run.pretrained.unlink()
    assert not again()["pretrain"]
    assert all(again().values())


def test_a_smaller_ensemble_leaves_no_member_of_the_larger_one(tmp_path: Path) -> None:
    run = whole(tmp_path / "run")
    chosen = small("finetune.members=2")
    do(chosen, run, "finetune")
    left = {int(path.stem) for path in (run.root / "members").glob("*.safetensors")}
    assert left == set(member_labels(chosen, run))


def test_run_folder_holds_what_the_contract_says(digits_run: RunDir) -> None:
    metrics = json.loads(digits_run.metrics.read_text())
    table = pd.read_parquet(digits_run.scores)
    assert list(table.columns)[:5] == ["id", "score", "p_value", "flagged", "predicted"]
    assert set(table["truth"]) == {"known", "novel"}
    assert table["id"].is_unique
    assert table["score"].between(0, 1).all()
    assert metrics["flagged"] == table["flagged"].sum()
    assert table.loc[table["flagged"], "p_value"].max() < table.loc[~table["flagged"], "p_value"].min()
    assert pd.read_csv(digits_run.quarantine).columns.tolist() == ["file", "reason"]
    assert {path.name for path in digits_run.figures.iterdir()} == {
        "learning_curves.png",
        "scores.png",
        "roc.png",
        "looks.png",
        "most_novel.png",
    }
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in digits_run.figures.iterdir())


def test_histories_hold_the_learning_curves(digits_run: RunDir) -> None:
    label = member_labels(small(), digits_run)[0]
    history = json.loads(digits_run.history(digits_run.member(label)).read_text())
    assert len(history) == 4
    curves = {"train_accuracy", "val_accuracy", "batch_known_accuracy", "batch_novel_accuracy"}
    assert curves | {"epoch", "loss", "val_loss"} == set(history[0])
    assert history[-1]["batch_novel_accuracy"] > history[-1]["batch_known_accuracy"]


def test_erd_finds_the_novel_digits_better_than_the_classifier_alone(tmp_path: Path) -> None:
    run = whole(tmp_path / "run", "pretrain.epochs=40", "finetune.epochs=20", "finetune.members=5")
    metrics = json.loads(run.metrics.read_text())
    assert metrics["holdout_auroc"] > 0.97
    assert metrics["holdout_auroc"] > metrics["holdout_max_softmax_auroc"] + 0.02
    assert metrics["holdout_tnr95"] > 0.85


def test_members_learn_the_calibration_images_only_where_they_are_mixed_in(tmp_path: Path) -> None:
    """`mixed` fine-tunes on more images than `holdout` does, and neither gives them their true labels."""
    mixed, apart = whole(tmp_path / "a"), whole(tmp_path / "b", "detect.calibration=holdout")
    sizes = [json.loads(run.ingested.read_text())["sizes"] for run in (mixed, apart)]
    assert [(size["calibration"], size["clean"]) for size in sizes] == [(100, 100), (200, 0)], "half stays clean"
    assert mixed.pretrained.read_bytes() == apart.pretrained.read_bytes()
    assert weights(mixed) != weights(apart)


def test_paper_mode_takes_its_threshold_from_validation_and_needs_no_calibration(tmp_path: Path) -> None:
    run = whole(tmp_path / "run", "detect.calibration=paper")
    sizes = json.loads(run.ingested.read_text())["sizes"]
    assert sizes["calibration"] == 0
    assert sizes["train"] == 450
    assert len(pd.read_parquet(run.reference_scores)) == sizes["val"]


def test_an_inbox_without_truth_runs_to_flags(tmp_path: Path) -> None:
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    for number in range(60):
        Image.fromarray((digits.images[number] * 15).astype("uint8")).save(inbox / f"{number:03}.png")
    (inbox / "broken.png").write_bytes(b"no image")
    run = whole(tmp_path / "run", f"data.inbox={inbox}", "data.settle=0")
    metrics = json.loads(run.metrics.read_text())
    assert metrics["auroc"] is None
    assert metrics["images"] == 60
    assert metrics["holdout_auroc"] is None
    table = pd.read_parquet(run.scores)
    assert "truth" not in table
    assert table["id"].tolist() == [f"{number:03}.png" for number in range(60)]
    assert pd.read_csv(run.quarantine)["file"].tolist() == ["broken.png"]
    listed = pd.read_parquet(packed.manifest(run.batch))
    assert listed.columns.tolist() == ["id", "group", "file", "sha256", "acquired_at"]
    assert listed["sha256"][7] == files.sha256(inbox / "007.png")
    copies = [note for note in json.loads(run.ingested.read_text())["warnings"] if "near copies" in note]
    assert "images of the batch are near copies of training images: " in copies[0]  # they are the digits trained on
    assert not (run.figures / "roc.png").exists()


def test_erd_plus_plus_starts_from_random_weights(digits_run: RunDir, tmp_path: Path) -> None:
    run = whole(tmp_path / "run", "finetune.init=random")
    assert run.pretrained.read_bytes() == digits_run.pretrained.read_bytes()
    assert all(weights(run)[name] != weights(digits_run)[name] for name in weights(run))


def test_a_member_that_is_trained_in_folds_counts_the_epochs_of_all_of_them(tmp_path: Path) -> None:
    """Or the time left would be told for the first fold alone, again and again."""
    run, settings = RunDir(tmp_path / "run"), small("detect.calibration=crossfit", "detect.folds=2")
    do(settings, run, "ingest", "pretrain")
    job = chain.BY_NAME["finetune"].jobs(settings, run)[0]
    assert job.epochs == 2 * (settings.finetune.epochs or 0)
    assert job.told is not None
    with watching(job.told) as seen:
        job.function(*job.arguments)
    assert seen == sorted(seen), "it never goes back"
    assert seen[-1] == (job.epochs, job.epochs)


@contextmanager
def watching(path: Path) -> Iterator[list[tuple[float, float]]]:
    """What is told in a file, as often as it can be read."""
    seen: list[tuple[float, float]] = []
    ended = threading.Event()

    def look() -> None:
        while True:
            last = ended.is_set()
            if path.exists():
                seen.append((files.load_json(path)["epoch"], files.load_json(path)["epochs"]))
            if last:
                return

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def test_how_long_a_stage_takes_is_known_from_the_batch_before(digits_run: RunDir) -> None:
    taken = stage_records.seconds_before(RunDir(digits_run.root.parent / "next"), "score")
    assert taken is not None
    assert 0 < taken < 600
    assert stage_records.seconds_before(digits_run, "score") is None, "the first one"


def test_without_a_terminal_every_stage_says_now_and_then_that_it_is_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress, "SAY", 0.001)
    monkeypatch.setattr(progress, "EVERY", 0.001)
    caplog.set_level(logging.INFO, "erd")
    whole(tmp_path / "run")
    who = {text.partition(":")[0] for text in caplog.messages}
    assert who >= {"ingest", "pretrain", "finetune ×3", "score", "evaluate"}
    assert any(re.fullmatch(r"finetune ×3: \d+ of 12 epochs after 0 min; about \d+ s left", t) for t in caplog.messages)
    assert all(text.isprintable() for text in caplog.messages)
