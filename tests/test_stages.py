"""The stages on the bundled digits: same bytes whatever the runner, reuse that looks at files, and what each leaves."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest

from erd import compute, files, params, scenarios, stages
from erd.errors import RunError
from erd.params import Settings
from erd.rundir import RunDir

SMALL = ["finetune.members=3", "pretrain.epochs=5", "finetune.epochs=4", "run.runner=serial"]


def settings(*more: str) -> Settings:
    return scenarios.resolve(params.load(None, [*SMALL, *more]))


def chain(root: Path, *more: str) -> RunDir:
    run, chosen = RunDir(root), settings(*more)
    stages.ingest(chosen, run)
    stages.pretrain(chosen, run)
    stages.finetune_all(chosen, run)
    stages.score(chosen, run)
    stages.evaluate(chosen, run)
    return run


def weights(run: RunDir) -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in sorted((run.root / "members").glob("*.safetensors"))}
    assert found
    return found


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return chain(tmp_path_factory.mktemp("serial") / "run")


def test_processes_write_the_bytes_of_the_serial_runner(finished: RunDir, tmp_path: Path) -> None:
    """One process; tests/flows/test_weekly.py has two."""
    other = chain(tmp_path / "run", "run.runner=process", "run.workers=1")
    assert weights(other) == weights(finished)
    for name in ("pretrained.safetensors", "scores.parquet", "metrics.json", "figures/learning_curves.png"):
        mine, theirs = (run.root / name for run in (other, finished))
        assert mine.read_bytes() == theirs.read_bytes(), name


def test_another_seed_gives_other_bytes(finished: RunDir, tmp_path: Path) -> None:
    other = chain(tmp_path / "run", "seed=1")
    shared = weights(other).keys() & weights(finished).keys()
    assert all(weights(other)[name] != weights(finished)[name] for name in shared)


def test_only_what_changed_is_made_again(tmp_path: Path) -> None:
    run = chain(tmp_path / "run")
    before = weights(run)

    def again(*more: str) -> dict[str, bool]:
        done = [stages.pretrain(settings(*more), run), *stages.finetune_all(settings(*more), run)]
        done.append(stages.score(settings(*more), run))
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
    run = chain(tmp_path / "run")
    chosen = settings("finetune.members=2")
    stages.finetune_all(chosen, run)
    left = {int(path.stem) for path in (run.root / "members").glob("*.safetensors")}
    assert left == set(stages.member_labels(chosen, run))


def test_run_folder_holds_what_the_contract_says(finished: RunDir) -> None:
    metrics = json.loads(finished.metrics.read_text())
    table = pd.read_parquet(finished.scores)
    assert list(table.columns)[:5] == ["id", "score", "p_value", "flagged", "predicted"]
    assert set(table["truth"]) == {"known", "novel"}
    assert table["id"].is_unique
    assert table["score"].between(0, 1).all()
    assert metrics["flagged"] == table["flagged"].sum()
    assert table.loc[table["flagged"], "p_value"].max() < table.loc[~table["flagged"], "p_value"].min()
    assert pd.read_csv(finished.quarantine).columns.tolist() == ["file", "reason"]
    assert {path.name for path in finished.figures.iterdir()} == {
        "learning_curves.png",
        "scores.png",
        "roc.png",
        "most_novel.png",
    }
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in finished.figures.iterdir())


def test_histories_hold_the_learning_curves(finished: RunDir) -> None:
    label = stages.member_labels(settings(), finished)[0]
    history = json.loads(finished.history(finished.member(label)).read_text())
    assert len(history) == 4
    curves = {"train_accuracy", "val_accuracy", "batch_known_accuracy", "batch_novel_accuracy"}
    assert curves | {"epoch", "loss", "val_loss"} == set(history[0])
    assert history[-1]["batch_novel_accuracy"] > history[-1]["batch_known_accuracy"]


def test_erd_finds_the_novel_digits_better_than_the_classifier_alone(tmp_path: Path) -> None:
    run = chain(tmp_path / "run", "pretrain.epochs=40", "finetune.epochs=20", "finetune.members=5")
    metrics = json.loads(run.metrics.read_text())
    assert metrics["holdout_auroc"] > 0.97
    assert metrics["holdout_auroc"] > metrics["holdout_max_softmax_auroc"] + 0.02
    assert metrics["holdout_tnr95"] > 0.85


def test_members_learn_the_calibration_images_only_where_they_are_mixed_in(tmp_path: Path) -> None:
    """`mixed` fine-tunes on more images than `holdout` does, and neither gives them their true labels."""
    mixed, apart = chain(tmp_path / "a"), chain(tmp_path / "b", "detect.calibration=holdout")
    sizes = [json.loads(run.ingested.read_text())["sizes"] for run in (mixed, apart)]
    assert [(size["calibration"], size["clean"]) for size in sizes] == [(100, 100), (200, 0)], "half stays clean"
    assert mixed.pretrained.read_bytes() == apart.pretrained.read_bytes()
    assert weights(mixed) != weights(apart)


def test_paper_mode_takes_its_threshold_from_validation_and_needs_no_calibration(tmp_path: Path) -> None:
    run = chain(tmp_path / "run", "detect.calibration=paper")
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
    run = chain(tmp_path / "run", f"data.inbox={inbox}", "data.settle=0")
    metrics = json.loads(run.metrics.read_text())
    assert metrics["auroc"] is None
    assert metrics["images"] == 60
    assert metrics["holdout_auroc"] is None
    table = pd.read_parquet(run.scores)
    assert "truth" not in table
    assert table["id"].tolist() == [f"{number:03}.png" for number in range(60)]
    assert pd.read_csv(run.quarantine)["file"].tolist() == ["broken.png"]
    listed = pd.read_parquet(run.manifest(run.batch))
    assert listed.columns.tolist() == ["id", "group", "sha256", "acquired_at"]
    assert listed["sha256"][7] == files.sha256(inbox / "007.png")
    copies = [note for note in json.loads(run.ingested.read_text())["warnings"] if "near copies" in note]
    assert "images of the batch are near copies of training images: " in copies[0]  # they are the digits trained on
    assert not (run.figures / "roc.png").exists()


def test_erd_plus_plus_starts_from_random_weights(finished: RunDir, tmp_path: Path) -> None:
    run = chain(tmp_path / "run", "finetune.init=random")
    assert run.pretrained.read_bytes() == finished.pretrained.read_bytes()
    assert all(weights(run)[name] != weights(finished)[name] for name in weights(run))


def test_a_death_of_a_worker_is_one_sentence() -> None:
    with compute.Workers(params.Run(workers=1), jobs=1) as workers:
        with pytest.raises(RunError, match="a worker process died"):
            workers.call(os._exit, 1)
        assert workers.call(os.getpid) != os.getpid(), "a new try gets a new worker"


def test_a_stopped_run_waits_for_no_member_and_starts_none() -> None:
    workers = compute.Workers(params.Run(workers=1), jobs=1)
    with ThreadPoolExecutor() as waiting:
        with pytest.raises(KeyboardInterrupt), workers:  # noqa: PT012
            workers.call(os.getpid)  # the process is up
            training = waiting.submit(workers.call, time.sleep, 600)
            time.sleep(0.5)
            raise KeyboardInterrupt
        with pytest.raises(RunError, match="a worker process died"):
            training.result(timeout=30)
    with pytest.raises(RunError, match="the run was stopped"):
        workers.call(os.getpid)


def test_member_goes_to_its_device_and_workers_fit_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    assert [str(compute.device(params.Run(), member)) for member in range(4)] == [
        "cuda:0",
        "cuda:1",
        "cuda:2",
        "cuda:0",
    ]
    assert compute.worker_count(params.Run(), jobs=5) == 3
    assert str(compute.device(params.Run(device="cpu"), 2)) == "cpu"
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setattr("erd.compute.cores", lambda: 8)
    assert compute.worker_count(params.Run(threads=3), jobs=5) == 2
    assert compute.worker_count(params.Run(), jobs=5) == 5
    assert compute.worker_count(params.Run(workers=2), jobs=5) == 2
