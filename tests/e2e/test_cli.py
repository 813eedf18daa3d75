"""The commands as a user types them: what they print, how they end; bad input is one sentence that loses nothing."""

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import servers

from erd.base.locks import alone_in
from erd.cli import main

FAST = ["--set", "pretrain.epochs=3", "--set", "finetune.epochs=2", "--set", "finetune.members=2", "--runner", "serial"]
ROOT = Path(__file__).parents[2]


def erd(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command in this process, which has torch loaded already: so many new ones would take minutes."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as usage:
            code = int(usage.code or 0)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def erd_process(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "erd.cli", *words], cwd=cwd, capture_output=True, text=True)


def last_json(done: subprocess.CompletedProcess[str]) -> dict:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def refused(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """One sentence on stderr after the log, no traceback, nothing on stdout, the right exit code."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    said = [line for line in done.stderr.splitlines() if line.startswith("erd: ")]
    assert said == done.stderr.splitlines()[-1:], "the sentence is the last line"
    for word in words:
        assert word in said[0], said[0]


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def test_run_prints_the_contract_as_json(tmp_path: Path) -> None:
    result = last_json(erd_process("run", *FAST, "--batch", "2026-W46", "--json", cwd=tmp_path))
    contract = ["batch", "scenario", "auroc", "tnr95", "flagged", "fdr_target", "alarm_p", "novel_share",
                "val_accuracy", "run_dir", "mlflow_run_id", "model_version", "seconds"]  # fmt: skip
    assert set(contract) <= set(result)
    assert result["batch"] == "2026-W46"
    assert result["run_dir"] == "runs/2026-W46"
    assert 0.5 < result["auroc"] <= 1
    assert json.loads((tmp_path / result["run_dir"] / "metrics.json").read_text())["auroc"] == result["auroc"]


def test_run_ends_with_a_summary_and_the_paths_of_figures(tmp_path: Path) -> None:
    done = erd("run", *FAST, cwd=tmp_path)
    assert done.returncode == 0
    assert (
        "images of batch digits-near look like something the classifier has never seen; at most about 1 in 20"
        in done.stdout
    )
    shown = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("figure", "scores", "metrics"))]
    assert len(shown) == 7
    assert all((tmp_path / path).is_file() for path in shown)


def test_stages_one_by_one_give_the_bytes_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert erd("run", *FAST, cwd=tmp_path / "a").returncode == 0
    written = []
    for words in (["ingest"], ["pretrain"], ["finetune"], ["score"], ["evaluate"]):
        written += last_json(erd("stage", *words, *FAST, "--json", cwd=tmp_path / "b"))["files"]
    assert "runs/digits-near/metrics.json" in written
    for name in written:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    label = next(Path(name).stem for name in written if "/members/" in name and "history" not in name)
    member = tmp_path / "b" / "runs" / "digits-near" / "members" / f"{label}.safetensors"
    member.unlink()
    assert last_json(erd("stage", "finetune", "--label", label, *FAST, "--json", cwd=tmp_path / "b"))
    assert member.read_bytes() == (tmp_path / "a" / member.relative_to(tmp_path / "b")).read_bytes()


def test_a_stage_before_its_inputs_says_which_to_run(tmp_path: Path) -> None:
    refused(erd("stage", "score", *FAST, cwd=tmp_path), 2, "ingest")
    assert files_in(tmp_path) == set()
    erd("stage", "ingest", *FAST, cwd=tmp_path)
    refused(erd("stage", "score", *FAST, cwd=tmp_path), 2, "pretrained.safetensors is missing")


def test_scenarios_and_doctor_answer_in_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)  # of the temporary server of a run before
    for name in ("PREFECT_PORT", "MLFLOW_PORT"):
        monkeypatch.setenv(name, str(servers.free_port()))
    names = [row["name"] for row in last_json(erd("scenarios", "--json", cwd=tmp_path))["scenarios"]]
    assert {"digits-near", "fmnist-near", "xray-viral", "cifar10-6v4-0"} <= set(names)
    found = last_json(erd("doctor", "--json", cwd=tmp_path))
    assert found["problems"] == []
    assert found["torchvision_works"]
    assert {"torch", "prefect", "mlflow", "dvc"} <= set(found["packages"])
    assert last_json(erd("doctor", "--data", "nowhere", "--json", cwd=tmp_path))["problems"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--set", "finetune.members=6"], 2, ["finetune.members is 6", "5 known classes"]),
        (["--set", "finetune.members=1"], 2, ["finetune.members is 1", "two or more"]),
        (["--set", "finetune.labels=[0, 7]"], 2, ["'7' is not a known class"]),
        (["--set", "finetune.labels=[1, 1]"], 2, ["twice"]),
        (["--set", "finetune.epohs=3"], 2, ["finetune.epohs", "finetune.epochs"]),
        (["--set", "finetune.epochs=many"], 2, ["finetune.epochs", "integer"]),
        (["--set", "model.net=resnet21"], 2, ["resnet21", "resnet20"]),
        (["--set", "data.batch_known=0", "--set", "data.batch_novel=0"], 2, ["the batch has no images"]),
        (["--set", "data.val=0"], 2, ["validation", "data.val"]),
        (["--set", "data.calibration=400"], 2, ["calibration"]),
        (["--set", "model.weights=nowhere.pt"], 2, ["nowhere.pt"]),
        (["--set", "run.device=cuda"], 2, ["run.device"]),
        (["--scenario", "digits-neer"], 2, ["digits-neer", "digits-near"]),
        (["--scenario", "fmnist-near"], 2, ["fashion_mnist", "--data", "ERD_DATA", "data.download=true"]),
        (["--scenario", "own"], 2, ["no labelled images in library", "erd ingest --labeled DIR"]),
        (["--runner", "threads"], 2, ["run.runner", "process"]),
        (["--inbox", "nowhere"], 2, ["nowhere"]),
        (["--batch", "../outside"], 2, ["data.batch"]),
        (["--params", "nowhere.yaml"], 2, ["nowhere.yaml"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    words: list[str], code: int, said: list[str], tmp_path: Path
) -> None:
    refused(erd("run", *words, "--json", cwd=tmp_path), code, *said)
    assert files_in(tmp_path) == set()


def test_wrong_usage_ends_with_2(tmp_path: Path) -> None:
    assert erd("rum", cwd=tmp_path).returncode == 2
    assert erd("stage", "bake", cwd=tmp_path).returncode == 2
    refused(erd("stage", "score", "--label", "3", cwd=tmp_path), 2, "--label is for the stage finetune")


def images(count: int, classes: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {
        "x_train": generator.integers(0, 256, (count, 8, 8), dtype=np.uint8),
        "y_train": np.arange(count) % classes,
    }


OWN = ["--scenario", "own", "--set", "data.source=npz", "--set", "data.path=own.npz", "--set", "model.net=mlp"]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda own: own | {"y_train": np.zeros(60, int)}, ["1 known class"]),
        (lambda own: own | {"x_train": np.where(own["x_train"] > 9, own["x_train"], np.nan)}, ["own.npz", "NaN"]),
        (lambda own: own | {"x_train": own["x_train"][:, :, 0]}, ["own.npz"]),
        (lambda own: own | {"y_train": own["y_train"][:-1]}, ["own.npz"]),
        (lambda own: own | {"x_train": own["x_train"][:0], "y_train": own["y_train"][:0]}, ["own.npz"]),
        (lambda own: {"y_train": own["y_train"]}, ["own.npz", "x_train"]),
    ],
    ids=["one class", "NaN pixels", "wrong shape", "labels of another length", "no images", "no x_train"],
)
def test_a_bad_npz_is_one_sentence_and_leaves_nothing(spoil, said: list[str], tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    np.savez(tmp_path / "own.npz", **spoil(images(60, 3)))
    done = erd("run", *OWN, *FAST, "--json", cwd=tmp_path)
    refused(done, done.returncode or -1, *said)
    assert files_in(tmp_path) == {"own.npz"}


def test_a_corrupt_npz_is_one_sentence(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", **images(60, 3))  # type: ignore[arg-type]
    whole = (tmp_path / "own.npz").read_bytes()
    (tmp_path / "own.npz").write_bytes(whole[: len(whole) // 2])
    refused(erd("run", *OWN, *FAST, cwd=tmp_path), 1, "own.npz", "damaged")


def test_a_known_class_without_training_images_is_named(tmp_path: Path) -> None:
    own = images(60, 3)
    own |= {"x_test": own["x_train"], "y_test": np.arange(60) % 4}  # class 3 is only in the test part
    np.savez(tmp_path / "own.npz", **own)  # type: ignore[arg-type]
    refused(erd("run", *OWN, *FAST, cwd=tmp_path), 1, "no training image", "class 3")


def test_own_classes_can_be_held_out_as_novel(tmp_path: Path) -> None:
    from sklearn.datasets import load_digits

    digits = load_digits()
    np.savez(tmp_path / "own.npz", x_train=(digits.images * 15).astype(np.uint8), y_train=digits.target)
    novel = ["--set", "data.novel=[5, 6, 7, 8, 9]", "--set", "data.image_size=8"]
    longer = ["--set", "pretrain.epochs=40", "--set", "finetune.epochs=30", "--set", "finetune.batch_size=32"]
    result = last_json(erd("run", *OWN, *FAST, *novel, *longer, "--json", cwd=tmp_path))
    assert result["auroc"] > 0.9
    refused(erd("run", *OWN, *FAST, "--set", "data.novel=[x]", cwd=tmp_path), 2, "data.novel", "'x'")


def test_output_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where the folder should be")
    refused(erd("run", *FAST, cwd=tmp_path), 1, "cannot write", "runs")


def test_two_runs_in_one_folder_do_not_disturb_each_other(tmp_path: Path) -> None:
    with alone_in(tmp_path / "runs" / "digits-near"):
        refused(erd("run", *FAST, cwd=tmp_path), 1, "another run is working in runs/digits-near", "--batch")


def test_quiet_leaves_results_and_what_went_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = erd_process("run", *FAST, "--quiet", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""
    assert "report   runs/digits-near/report.html" in done.stdout
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    done = erd_process("run", *FAST, "--quiet", "--batch", "away", cwd=tmp_path)
    assert done.returncode == 0
    assert "MLflow at http://127.0.0.1:9 does not answer" in done.stderr
    assert all("MLflow" in line for line in done.stderr.splitlines())
    refused(erd_process("run", "--quiet", "--scenario", "digits-neer", cwd=tmp_path), 2, "digits-near")


def test_erd_help_answers_without_loading_torch() -> None:
    probe = "import sys, erd.cli; erd.cli.parser(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe]).returncode == 0
