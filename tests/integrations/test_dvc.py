"""DVC as a flow uses it: data by hash, there and back, in real repositories; and what goes wrong is one sentence."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from erd.base import files
from erd.base.errors import RunError
from erd.integrations import dvc
from erd.runs.configure import resolve
from erd.runs.folder import RunDir
from erd.settings.schema import Settings, load

ROOT = Path(__file__).parents[2]
SHIPPED = ("dvc.yaml", "params.yaml", ".gitignore", ".dvcignore", ".dvc/config", ".dvc/.gitignore")


def command(*words: str, cwd: Path = Path()) -> str:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh clone of the project, as far as git and DVC are concerned, and nothing of this machine's DVC."""
    for name, value in {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "DVC_NO_ANALYTICS": "1",
        "DVC_SITE_CACHE_DIR": str(tmp_path / "site"),
        "DVC_GLOBAL_CONFIG_DIR": str(tmp_path / "global"),
        "DVC_SYSTEM_CONFIG_DIR": str(tmp_path / "system"),
    }.items():
        monkeypatch.setenv(name, value)
    workspace = tmp_path / "workspace"
    for name in SHIPPED:
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, workspace / name)
    monkeypatch.chdir(workspace)
    command("git", "init", "-q")
    return workspace


@pytest.fixture
def remote(workspace: Path) -> Path:
    folder = workspace.parent / "remote"
    command("dvc", "remote", "add", "-d", "storage", str(folder))
    return folder


def settings(*overrides: str) -> Settings:
    return resolve(load(Path("params.yaml"), overrides))


def ingested(batch: str) -> RunDir:
    """A run folder with the names ingest writes; DVC does not look inside."""
    run = RunDir(Path("runs") / batch)
    for path in dvc.data_files(run):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"{path} of {batch}".encode() * 50)
    return run


def contents(run: RunDir) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in dvc.data_files(run)}


def forget(run: RunDir) -> None:
    """Neither the workspace nor the cache has the data any more."""
    shutil.rmtree(".dvc/cache")
    for path in dvc.data_files(run):
        path.unlink()


def test_outside_a_repository_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = ingested("2026-W46")
    before = sorted(tmp_path.rglob("*"))
    assert not dvc.is_repo()
    assert dvc.save(resolve(Settings()), run) == {}
    assert dvc.track(dvc.data_files(run)) == {}
    assert dvc.push() is False
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(RunError, match="no DVC repository here"):
        dvc.checkout(tmp_path / "gone", "0" * 32)


def test_a_batch_gets_pointers_for_git_and_dvcs_own_hashes(workspace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = ingested("2026-W46")
    hashes = dvc.save(settings("data.batch=2026-W46"), run)
    assert capfd.readouterr() == ("", ""), "stdout belongs to --json"
    assert set(hashes) == {path.relative_to(run.root).as_posix() for path in dvc.data_files(run)}
    for name, md5 in hashes.items():
        assert f"md5: {md5}" in (run.root / f"{name}.dvc").read_text()
    shown = command("git", "status", "--short", "-uall", "runs").split()[1::2]
    assert sorted(shown) == sorted(f"runs/2026-W46/{name}.dvc" for name in hashes), "git sees pointers, and no data"
    assert "runs/2026-W46" not in command("dvc", "status")
    run.batch.write_bytes(b"another week")
    assert "modified:           runs/2026-W46/data/batch.safetensors" in command("dvc", "status"), "DVC finds pointers"
    again = dvc.save(settings("data.batch=2026-W46"), run)
    assert {name for name in hashes if hashes[name] != again[name]} == {"data/batch.safetensors"}


def test_data_come_back_by_hash_from_the_cache_and_from_a_remote(workspace: Path, remote: Path) -> None:
    run = ingested("2026-W46")
    before = contents(run)
    hashes = dvc.save(settings("data.batch=2026-W46"), run)
    assert dvc.push() is True
    run.batch.write_bytes(b"altered")
    for emptied in (False, True):
        if emptied:
            forget(run)
        for name, md5 in hashes.items():
            dvc.checkout(run.root / name, md5)
        assert contents(run) == before
    command("git", "add", "-A")
    command("git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "week")
    command("git", "clone", "-q", str(workspace), "../colleague")
    command("dvc", "pull", "-q", "-R", "runs", cwd=Path("../colleague"))
    assert contents(RunDir(Path("../colleague") / run.root)) == before


def test_data_in_the_pipelines_own_folder_are_kept_by_hash_alone(workspace: Path, remote: Path) -> None:
    run = ingested("digits-near")
    before = contents(run)
    hashes = dvc.save(settings("finetune.epochs=3"), run)
    assert not list(run.root.rglob("*.dvc")), "DVC takes no pointer to an output of dvc.yaml"
    assert not Path("dvc.lock").exists(), "with overrides these are not what dvc.yaml describes"
    dvc.push(hashes.values())
    forget(run)
    for name, md5 in hashes.items():
        dvc.checkout(run.root / name, md5)
    assert contents(run) == before


def test_without_a_remote_pushing_does_nothing_and_missing_data_are_one_sentence(workspace: Path) -> None:
    run = ingested("2026-W46")
    hashes = dvc.save(settings("data.batch=2026-W46"), run)
    assert dvc.push(hashes.values()) is False
    forget(run)
    with pytest.raises(RunError, match=r"^runs/2026-W46/data/batch.safetensors .* there is no default remote; .*$"):
        dvc.checkout(run.batch, hashes["data/batch.safetensors"])
    assert not run.batch.exists()


def test_a_damaged_cache_gives_no_wrong_data(workspace: Path) -> None:
    run = ingested("2026-W46")
    md5 = dvc.save(settings("data.batch=2026-W46"), run)["data/batch.safetensors"]
    cached = Path(".dvc/cache/files/md5") / md5[:2] / md5[2:]
    cached.chmod(0o644)
    cached.write_bytes(b"rotten")
    run.batch.unlink()
    with pytest.raises(RunError, match=f"{md5[2:]}"):
        dvc.checkout(run.batch, md5)
    assert not run.batch.exists()


def test_dvcs_troubles_are_one_sentence(workspace: Path) -> None:
    run = ingested("2026-W46")
    command("dvc", "remote", "add", "-d", "bucket", "s3://nowhere/erd")
    with pytest.raises(RunError, match=r"^DVC could not push to the remote: .*dvc-s3[^\n]*$"):
        dvc.push()
    Path("dvc.yaml").write_text("stages: [")
    with pytest.raises(RunError, match=r"^DVC could not track the data: [^\n]*dvc.yaml[^\n]*$"):
        dvc.save(settings("data.batch=2026-W46"), run)


@pytest.mark.parametrize(
    ("overrides", "own"),
    [
        ([], True),
        (["run.runner=serial", "data.root=/elsewhere"], True),
        (["track.experiment=mine"], False),
        (["data.batch=digits-near"], True),
        (["pretrain.epochs=40"], True),  # what the scenario says anyway
        (["pretrain.epochs=3"], False),
        (["detect.fpr=0.1"], False),
        (["run.threads=2"], False),  # may change the last bits
        (["seed=1"], False),
        (["data.scenario=fmnist-near"], False),
        (["data.batch=2026-W46"], False),
    ],
    ids=str,
)
def test_only_a_run_with_the_values_of_params_yaml_is_the_pipelines(
    overrides: list[str], own: bool, workspace: Path
) -> None:
    asked = settings(*overrides)
    assert dvc.is_pipeline(asked, RunDir.of(asked)) is own


def test_a_batch_without_a_name_has_no_place_in_the_pipeline(workspace: Path) -> None:
    params = Path("params.yaml")
    params.write_text(params.read_text().replace("batch: digits-near", "batch: null"))
    asked = settings()
    assert RunDir.of(asked).root == Path("runs/digits-near")
    assert not dvc.is_pipeline(asked, RunDir.of(asked))


@pytest.mark.parametrize(
    ("overrides", "folder"),
    [
        ([], "digits-near"),
        (["finetune.epochs=3"], "digits-near"),
        (["seed=1"], "digits-near-seed1"),
        (["data.scenario=fmnist-near"], "fmnist-near"),
        (["data.scenario=fmnist-near", "seed=2"], "fmnist-near-seed2"),
        (["data.batch=mine", "data.scenario=fmnist-near", "seed=1"], "mine"),
        (["seed=1", "data.batch=mine"], "mine"),
    ],
    ids=str,
)
def test_another_scenario_or_seed_does_not_write_into_the_pipelines_folder(overrides: list[str], folder: str) -> None:
    assert RunDir.of(load(ROOT / "params.yaml", overrides)).root == Path("runs") / folder
    assert RunDir.of(load(None, overrides)).root == Path("runs") / folder


def test_a_copy_replaces_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("new")
    (tmp_path / "b").write_text("old")
    files.copy(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_text() == "new"
