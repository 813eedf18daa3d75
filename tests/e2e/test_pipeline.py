"""The pipeline of dvc.yaml with real `dvc` in real repositories: the bytes of a run, and only what changed again."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from erd.data import library
from erd.data.library import Library
from erd.integrations import dvc, dvc_pipeline
from erd.runs import stage_records
from erd.runs.answers import Answer, Answers, now
from erd.runs.folder import RunDir
from erd.runs.results import Metrics
from erd.settings.schema import Finetune
from erd.training.members import draw_labels
from erd.weekly.chain import CHAIN
from flows import local

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SHIPPED = ("dvc.yaml", "params.yaml", ".gitignore", ".dvcignore", ".dvc/config", ".dvc/.gitignore")
RUN = RunDir(Path("runs/digits-near"))
DRAWN = draw_labels(Finetune(members=3), list("01234"), seed=0)
CLEAN = "Data and pipelines are up to date.\n"


def command(*words: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(words, cwd=cwd, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def stages_run(output: str) -> list[str]:
    return [line.split("'")[1] for line in output.splitlines() if line.startswith("Running stage")]


def commit_all(cwd: Path) -> None:
    command("git", "add", "-A", cwd=cwd)
    command("git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "as it is", cwd=cwd)


def run_flow(*overrides: str) -> dict[str, str]:
    """`erd run` in this process, which has torch loaded already; the hashes of the data."""
    local.weekly(overrides=list(overrides), runner="serial")
    return dvc.hashes(RUN)


def edit(path: Path, *replacements: tuple[str, str]) -> None:
    text = path.read_text()
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


@pytest.fixture(scope="module")
def isolated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing of this machine's DVC and git."""
    place = tmp_path_factory.mktemp("dvc")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SITE_CACHE", "GLOBAL_CONFIG", "SYSTEM_CONFIG"):
            patch.setenv(f"DVC_{name}_DIR", str(place / name))
        patch.setenv("DVC_NO_ANALYTICS", "1")
        patch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("GIT_CONFIG_GLOBAL", str(place / "gitconfig"))
        (place / "gitconfig").write_text("[user]\nname = t\nemail = t@t\n")
        yield


@pytest.fixture(scope="module")
def fresh(isolated: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's own files and code, with few epochs."""
    workspace = tmp_path_factory.mktemp("fresh")
    for name in SHIPPED:
        (workspace / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, workspace / name)
    shutil.copytree(ROOT / "erd", workspace / "erd", ignore=shutil.ignore_patterns("__pycache__"))
    params = yaml.safe_load((workspace / "params.yaml").read_text())
    params["pretrain"]["epochs"] = 3
    params["finetune"] |= {"epochs": 2, "members": 3}
    (workspace / "params.yaml").write_text(yaml.safe_dump(params))
    command("git", "init", "-q", cwd=workspace)
    commit_all(workspace)
    return workspace


@pytest.fixture(scope="module")
def reproduced(fresh: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """After `dvc repro` from scratch."""
    workspace = tmp_path_factory.mktemp("reproduced") / "workspace"
    command("git", "clone", "-q", str(fresh), str(workspace), cwd=fresh)
    output = command("dvc", "repro", cwd=workspace)
    assert stages_run(output) == [stage.name for stage in CHAIN]
    shown = command("git", "status", "--short", "-uall", cwd=workspace).split()[1::2]
    assert shown == ["dvc.lock", "runs/digits-near/metrics.json"], "all else is DVC's"
    commit_all(workspace)
    return workspace


@pytest.fixture
def workspace(reproduced: Path, tmp_path: Path) -> Path:
    """A copy to do as one likes with."""
    return shutil.copytree(reproduced, tmp_path / "workspace", symlinks=True)


def test_after_a_repro_nothing_is_left_to_do(reproduced: Path) -> None:
    assert command("dvc", "status", cwd=reproduced) == CLEAN
    assert stages_run(command("dvc", "repro", cwd=reproduced)) == []
    assert command("git", "status", "--short", cwd=reproduced) == ""


def test_a_run_gives_the_bytes_of_the_pipeline_and_leaves_dvc_nothing_to_do(
    fresh: Path, reproduced: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command("git", "clone", "-q", str(fresh), str(tmp_path / "clone"), cwd=fresh)
    monkeypatch.chdir(tmp_path / "clone")
    hashes = run_flow()
    assert Path("dvc.lock").read_bytes() == (reproduced / "dvc.lock").read_bytes(), "all outputs by their hashes"
    assert RUN.metrics.read_bytes() == (reproduced / RUN.metrics).read_bytes()
    assert f"md5: {hashes['data/batch.safetensors']}" in Path("dvc.lock").read_text()
    assert command("dvc", "status", cwd=Path()) == CLEAN
    assert stages_run(command("dvc", "repro", cwd=Path())) == []

    run_flow("finetune.members=2")
    assert Path("dvc.lock").read_bytes() == (reproduced / "dvc.lock").read_bytes(), "dvc.yaml describes no overrides"
    assert "evaluate" in command("dvc", "status", cwd=Path())


def test_metrics_and_plots_are_shown_and_compared_after_a_change_that_reruns_only_what_depends_on_it(
    workspace: Path,
) -> None:
    edit(workspace / "params.yaml", ("fdr: 0.05", "fdr: 0.2"))
    ran = stages_run(command("dvc", "repro", cwd=workspace))
    assert ran == ["ingest", "score", "evaluate"], "ingest writes settings.json, and the same images as before"
    assert "auroc" in command("dvc", "metrics", "show", cwd=workspace)
    assert "fdr_target" in command("dvc", "metrics", "diff", cwd=workspace)
    for words in (["show"], ["diff", "HEAD"]):
        command("dvc", "plots", *words, "-o", words[0], cwd=workspace)
        page = (workspace / words[0] / "index.html").read_text()
        for title in ("ROC of the batch", "Score histogram", "Learning curves, mean of the members"):
            assert title in page
        assert "most_novel.png" in page


def test_an_experiment_with_fewer_members_leaves_just_these(workspace: Path) -> None:
    command("dvc", "exp", "run", "-S", "finetune.members=2", cwd=workspace)
    run = RunDir(workspace / RUN.root)
    assert {int(path.stem) for path in (run.root / "members").glob("*.safetensors")} == set(DRAWN[:2])
    assert Metrics.read(run).members == 2
    assert command("dvc", "status", cwd=workspace) == CLEAN
    command("git", "checkout", "-q", ".", cwd=workspace)
    command("dvc", "checkout", "-q", cwd=workspace)
    assert len(list((run.root / "members").glob("*.safetensors"))) == 3, "DVC brings the larger ensemble back"
    assert command("dvc", "status", cwd=workspace) == CLEAN


def test_changed_code_is_run_again_and_only_the_stages_it_concerns(workspace: Path) -> None:
    """The pipeline runs the workspace's own code here, as in a clone of the repository."""
    own = {"PYTHONPATH": str(workspace)}
    run = RunDir(workspace / RUN.root)
    before, trained = run.scores.read_bytes(), stage_records.read(run, "pretrain")
    edit(
        workspace / "erd" / "statistics" / "disagreement.py",
        ("total.sum(-1).div_(pairs)", "1 - total.sum(-1).div_(pairs)"),
    )
    assert "statistics" in command("dvc", "status", cwd=workspace)
    command("dvc", "repro", cwd=workspace, **own)
    assert run.scores.read_bytes() != before, "the score is inverted"
    assert stage_records.read(run, "pretrain") == trained, "it was called, and had nothing to do"
    assert command("dvc", "status", cwd=workspace) == CLEAN
    edit(workspace / "erd" / "review" / "page.css", ("body", "body "))
    assert command("dvc", "status", cwd=workspace) == CLEAN, "no stage has to do with the page"


def test_the_pipeline_is_that_of_the_chain() -> None:
    assert (ROOT / "dvc.yaml").read_text() == dvc_pipeline.pipeline(), "`make dvc.yaml` writes it"


def test_another_scenario_needs_no_change_of_the_pipeline(workspace: Path) -> None:
    edit(
        workspace / "params.yaml",
        ("scenario: digits-near", "scenario: digits-c5-fog"),
        ("batch: digits-near", "batch: fog"),
    )
    command("dvc", "repro", cwd=workspace)
    assert Metrics.read(RunDir(workspace / "runs" / "fog")).scenario == "digits-c5-fog"


def test_a_run_of_the_pipeline_can_be_reviewed_and_incorporated(workspace: Path) -> None:
    """It has its settings, which only the flow wrote once."""
    answers = RunDir(workspace / RUN.root).answers
    image = pd.read_parquet(RunDir(workspace / RUN.root).scores)["id"][0]
    Answers(answers).add(Answer(image, "class", "7", "ada", "flagged", now()))
    command("erd", "review", "--batch", "digits-near", "--export", "answers.csv", cwd=workspace)
    assert image in (workspace / "answers.csv").read_text()
    library.save(Library(np.zeros((2, 8, 8), np.uint8), library.table({"id": ["a", "b"], "sha256": ["a", "b"],
                 "label": ["0", "1"], "group": ["a", "b"]}, 2)), workspace / "library")  # fmt: skip
    said = command("erd", "incorporate", "--batch", "digits-near", "--json", cwd=workspace)
    assert json.loads(said.splitlines()[-1])["added"] == 1


def test_the_commands_work_where_no_environment_is_active(workspace: Path) -> None:
    (workspace / ".venv").symlink_to(BIN.parent)
    command(str(BIN / "dvc"), "repro", "--force", "--single-item", "ingest", cwd=workspace, PATH="/usr/bin:/bin")
