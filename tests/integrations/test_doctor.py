"""`erd doctor`: what it finds, and that what is wrong is a sentence."""

from pathlib import Path

import pytest

from erd.integrations import doctor


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_machine_on_which_all_is_well() -> None:
    found = doctor.examine(None)
    assert found["problems"] == []
    assert found["torchvision_works"]
    assert found["data"] == {"digits": "bundled"}
    assert found["scenario"] == "digits-near", "the default, where there is no params.yaml"


def test_the_scenario_is_that_of_params_yaml() -> None:
    Path("params.yaml").write_text("data:\n  scenario: fmnist-c5-fog\n")
    assert doctor.examine(None)["scenario"] == "fmnist-c5-fog"


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ("data:\n  scenario: digits-far\n", "unknown scenario 'digits-far': did you mean 'digits-near'?"),
        ("data:\n  scenari: own\n", "unknown setting 'data.scenari' in params.yaml"),
        ("data: [", "params.yaml is not valid YAML at line 1"),
    ],
)
def test_a_params_yaml_that_cannot_be_run_is_a_problem(params: str, problem: str) -> None:
    Path("params.yaml").write_text(params)
    found = doctor.examine(None)
    assert found["scenario"] == "not known"
    assert [said for said in found["problems"] if problem in said]


def test_what_does_not_answer_and_what_is_not_there_are_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    found = doctor.examine(Path("nowhere"))
    assert found["servers"]["mlflow"] == "not reached"
    assert any("MLFLOW_TRACKING_URI is http://127.0.0.1:9, which does not answer" in said for said in found["problems"])
    assert any("the data folder nowhere is not there" in said for said in found["problems"])
