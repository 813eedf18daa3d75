"""`erd init`: a workspace for one's own images, in which nothing that is there is overwritten."""

import json
import shutil
from pathlib import Path

import pictures_of_shapes
import pytest
import yaml

from erd.base.errors import UserError
from erd.cli import main
from erd.data import library
from erd.data.collect import collect
from erd.integrations import doctor
from erd.runs import workspace
from erd.runs.configure import settings_for
from erd.settings import schema

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pictures_of_shapes.files(Path("scans"), {"rings": 6, "stripes": 5})


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder has the files that a clone has."""
    (tmp_path / "clone").mkdir()
    for name in ("params.yaml", "prefect.yaml"):
        shutil.copy(ROOT / name, tmp_path / "clone" / name)
    monkeypatch.chdir(tmp_path / "clone")
    return tmp_path / "clone"


def files_in(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def schedule(place: Path) -> tuple[str, str]:
    """cron and time zone, as `prefect deploy` reads them."""
    told = yaml.safe_load((place / "prefect.yaml").read_text())
    [weekly] = [one for one in told["deployments"] if one["name"] == "weekly"]
    zones = [step["prefect.deployments.steps.run_shell_script"]["script"] for step in told["build"]]
    return weekly["schedules"][0]["cron"], zones[1]


def test_in_a_clone_it_changes_a_few_words_and_makes_library_and_inbox(clone: Path) -> None:
    before = (clone / "params.yaml").read_text().splitlines()
    words = ["--weekly", "Tue 04:30", "--timezone", "Europe/Zurich"]
    assert main(["init", "--labelled", "../scans", *words]) == 0
    assert schema.load(clone / "params.yaml").data.scenario == "own"
    after = (clone / "params.yaml").read_text().splitlines()
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert [line.split()[:2] for line in changed] == [["scenario:", "own"], ["batch:", "own"]]
    assert {line.index("#") for line in changed} == {before[7].index("#")}, "comments stay, and where they are"
    assert schedule(clone) == ("30 4 * * 2", 'echo "${ERD_TIMEZONE:-Europe/Zurich}"')
    assert len(library.read()) == 11
    assert "inbox/2026-W46/" in (clone / "inbox" / "README.md").read_text()
    assert settings_for(batch="2026-W46").data.inbox == "inbox/2026-W46", "what `erd run --batch` looks at"


def test_another_folder_is_made_and_needs_nothing_of_the_clone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "watch", "--labeled", "scans", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["workspace"], told["counts"]) == ("watch", {"rings": 6, "stripes": 5})
    assert sorted(path.name for path in Path("watch").iterdir()) == ["inbox", "library", "params.yaml", "prefect.yaml"]
    assert schedule(Path("watch")) == ("0 3 * * 1", 'echo "${ERD_TIMEZONE:-UTC}"')
    entries = [one["entrypoint"] for one in yaml.safe_load(Path("watch/prefect.yaml").read_text())["deployments"]]
    assert not any("/" in entry for entry in entries), "modules, which are found from any folder"
    assert not Path("library").exists()


def test_it_says_what_comes_next(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "watch", "--labeled", "scans"]) == 0
    said = capsys.readouterr().out
    assert "rings    6" in said
    assert "kept at 32×32 pixels" in said
    assert "cd watch && erd run --batch 2" in said


@pytest.mark.parametrize("there", ["library", "params.yaml", "another params.yaml"])
def test_a_workspace_that_is_there_is_refused_and_stays(clone: Path, there: str, capsys: pytest.CaptureFixture) -> None:
    if there == "library":
        library.take_in(Path("../scans"), None)
    elif there == "params.yaml":
        (clone / "params.yaml").write_text("data:\n  scenario: own\n")
    else:
        (clone / "params.yaml").write_text("data: {scenario: digits-near}\n")
    before = files_in(clone)
    assert main(["init", "--labeled", "../scans"]) == 2
    [sentence] = capsys.readouterr().err.splitlines()
    assert ("a workspace is here already" in sentence) == (there != "another params.yaml")
    assert files_in(clone) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--weekly", "someday"], "'Mon 03:00', not 'someday'"),
        (["--weekly", "Mon 25:00"], "'Mon 03:00', not 'Mon 25:00'"),
        (["--timezone", "Mars/Olympus"], "Europe/Zurich or UTC, not 'Mars/Olympus'"),
        (["--labeled", "nowhere"], "nowhere is not there"),
        (["--labeled", "."], "is the workspace itself"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_leaves_all_as_it_was(
    clone: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files_in(clone)
    assert main(["init", "--labeled", "../scans", *words]) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]
    assert files_in(clone) == before


def test_the_schedule_runs_own_images_once_some_are_labelled(clone: Path) -> None:
    assert workspace.scheduled() == "digits-near"
    assert doctor.examine(None)["scheduled"] == "the demo digits-near"
    library.take_in(Path("../scans"), None)
    assert workspace.scheduled() == "own", "whatever params.yaml says"
    assert doctor.examine(None)["scheduled"] == "own: the images of inbox/<week>"


@pytest.mark.parametrize("batch", [None, "own"], ids=["params.yaml's", "as a run without a name is called"])
def test_a_run_without_a_week_asks_which_one(clone: Path, batch: str | None) -> None:
    assert main(["init", "--labeled", "../scans"]) == 0
    with pytest.raises(UserError, match="which week"):
        collect(settings_for(batch=batch, overrides=["data.least=1"]))
