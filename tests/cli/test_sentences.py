"""What a command says where it cannot go on: one sentence, however long the input was and whatever the reason."""

import pytest

from erd import cli
from erd.cli import main
from erd.integrations import doctor


@pytest.mark.parametrize(
    "arguments",
    [
        ["decide", "--batch", "x" * 100_000, "--set", "detect.fdr=0.2"],
        ["stage", "ingest", "--set", "data.known=" + "x" * 100_000],
        ["stage", "ingest", "--set", "x" * 100_000 + "=1"],
        ["review", "--batch", "B", "--port", "9" * 100_000],
        ["simulate", "--weeks", "9" * 4000],
        ["x" * 100_000],
    ],
)
def test_what_was_given_is_not_repeated_without_end(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(arguments)
    except SystemExit as ended:  # argparse
        code = int(ended.code or 0)
    said = capsys.readouterr().err
    assert code == 2
    assert len(said) < 1500
    assert "…" in said


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "erd: there is not enough memory: "),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
            "erd: there is not enough memory: ",
        ),
        (OSError(28, "No space left on device", "runs/x"), "erd: no space left on device: 'runs/x'; check path, space"),
        (KeyError("x"), "erd: this is a fault of erd: KeyError in test_sentences.py, line "),
    ],
)
def test_what_nobody_foresaw_is_one_sentence_too(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(data: object) -> None:
        raise error

    monkeypatch.setattr(doctor, "examine", fails)
    assert main(["doctor"]) == 1
    err = capsys.readouterr().err
    assert err.startswith(said)
    assert err.count("\n") == 1
    monkeypatch.setenv(cli.SHOW_ALL, "1")
    with pytest.raises(type(error)):
        main(["doctor"])
