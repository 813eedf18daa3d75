"""The pipeline of dvc.yaml with real `dvc` in real repositories: the bytes of a run, and only what changed again."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from erd import files, versioning
from erd.ensemble import draw_labels
from erd.params import Finetune
from erd.rundir import RunDir
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
    return versioning.hashes(RUN)


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
    """The project's own files, with few epochs and only stages for the labels that will be drawn."""
    workspace = tmp_path_factory.mktemp("fresh")
    for name in SHIPPED:
        (workspace / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, workspace / name)
    edit(workspace / "dvc.yaml", ("[0, 1, 2, 3, 4]", str(DRAWN)))
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
    expected = ["ingest", "pretrain", *(f"finetune@{label}" for label in DRAWN), "score", "evaluate"]
    assert stages_run(output) == expected
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
    assert stages_run(command("dvc", "repro", cwd=workspace)) == ["score", "evaluate"]
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
    assert files.load_json(run.metrics)["members"] == 2
    assert command("dvc", "status", cwd=workspace) == CLEAN
    command("git", "checkout", "-q", ".", cwd=workspace)
    command("dvc", "checkout", "-q", cwd=workspace)
    assert len(list((run.root / "members").glob("*.safetensors"))) == 3, "DVC brings the larger ensemble back"
    assert command("dvc", "status", cwd=workspace) == CLEAN


def test_the_commands_work_where_no_environment_is_active(workspace: Path) -> None:
    (workspace / ".venv").symlink_to(BIN.parent)
    command(str(BIN / "dvc"), "repro", "--force", "--single-item", "ingest", cwd=workspace, PATH="/usr/bin:/bin")
