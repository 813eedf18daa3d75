"""What the schedule runs: one's own images once some are labelled, never a demo under a week's name."""

import asyncio
from pathlib import Path
from typing import Any

import pictures_of_shapes
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey, FlowRunFilter, FlowRunFilterName

from erd.base.errors import UserError
from erd.cli import main
from erd.data import library
from flows import local

SMALL = ["pretrain.epochs=1", "finetune.epochs=1", "finetune.members=2", "run.runner=serial"]


@pytest.fixture(autouse=True)
def deployed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a workspace, as a worker starts a deployment's run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT__RUNTIME__DEPLOYMENT__ID", "0" * 8 + "-0000-0000-0000-" + "0" * 12)


@pytest.fixture
def labelled() -> None:
    library.take_in(pictures_of_shapes.files(Path("scans"), {"rings": 30, "stripes": 30}), None)


def ask(question: Any) -> Any:
    async def answer() -> Any:
        async with get_client() as client:
            return await question(client)

    return asyncio.run(answer())


@pytest.mark.parametrize("there", [False, True], ids=["no inbox", "an empty inbox"])
def test_a_week_without_images_is_a_state_of_its_own_and_no_failure(labelled: None, there: bool) -> None:
    batch = f"2025-W4{7 + there}"  # no week in which this may run
    if there:
        (Path("inbox") / batch / "monday").mkdir(parents=True)
        (Path("inbox") / batch / ".sync").touch()
    local.weekly(batch=batch, overrides=SMALL)
    [run] = ask(
        lambda client: client.read_flow_runs(flow_run_filter=FlowRunFilter(name=FlowRunFilterName(any_=[batch])))
    )
    assert run.state.is_completed()
    assert run.state.name == "Nothing arrived"
    words = f"Nothing arrived for {batch}: inbox/{batch} has no images."
    assert run.state.message.startswith(words)
    of_key = ArtifactFilter(key=ArtifactFilterKey(any_=["nothing-arrived"]))
    told = ask(lambda client: client.read_artifacts(artifact_filter=of_key))
    assert [one for one in told if one.flow_run_id == run.id and one.data.startswith(words)]
    assert not Path("runs").exists(), "the week can still be run"


def test_an_inbox_that_is_named_and_not_there_is_a_mistake(labelled: None) -> None:
    with pytest.raises(UserError, match="nowhere is not there"):
        local.weekly(batch="2026-W49", inbox="nowhere", overrides=SMALL)


@pytest.mark.parametrize("said", [{}, {"inbox": "inbox/2026-W50"}], ids=["of its name", "named"])
def test_an_inbox_is_not_passed_over_for_a_demo(said: dict[str, Any]) -> None:
    Path("inbox/2026-W50").mkdir(parents=True)
    with pytest.raises(UserError, match="inbox/2026-W50 is an inbox for your own images, and the scenario digits-near"):
        local.weekly(batch="2026-W50", overrides=SMALL, **said)
    assert not Path("runs").exists()


def test_the_command_line_does_not_either(capsys: pytest.CaptureFixture[str]) -> None:
    Path("inbox/2026-W50").mkdir(parents=True)
    for words in (["--batch", "2026-W50"], ["--inbox", "inbox/2026-W50"]):
        assert main(["run", *words]) == 2
        assert "begin with `erd init --labeled DIR`" in capsys.readouterr().err


def test_a_demo_that_is_scheduled_has_its_own_name() -> None:
    assert local.weekly(overrides=SMALL)["run_dir"] == "runs/digits-near"
