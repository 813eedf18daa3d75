"""params.yaml and its schema say the same, and every mistake in it is one sentence that names the key."""

import re
from pathlib import Path

import pytest
import yaml

from erd.base.errors import UserError, nearest
from erd.settings.schema import Settings, keys, load

SHIPPED = Path(__file__).parents[2] / "params.yaml"


def lines_of(path: Path) -> dict[str, str]:
    """What stands behind each dotted key, by the indentation of the file."""
    found, block = {}, ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if match := re.match(r"( *)(\w+):(.*)", line):
            indent, name, rest = match.groups()
            found[f"{block}.{name}" if indent else name] = rest
            block = block if indent else name
    return found


def test_the_shipped_file_says_what_the_schema_says() -> None:
    named = {"data.batch": "digits-near"}  # dvc.yaml needs the name; it says no more than the default, which is null
    assert load(SHIPPED) == Settings().override(named)
    assert load(SHIPPED, ["seed=0"]) == Settings() == load()


def test_the_shipped_file_holds_every_setting_with_a_word_on_what_it_does() -> None:
    lines = lines_of(SHIPPED)
    blocks = set(Settings.model_fields) - {"seed"}
    assert set(lines) - blocks == set(keys())
    undocumented = [key for key in keys() if not re.search(r"  # \S", lines[key])]
    assert undocumented == []


def test_every_setting_that_scripts_rely_on_is_there() -> None:
    relied_on = """seed data.download pretrain.epochs finetune.members finetune.labels finetune.epochs finetune.patience
        finetune.keep finetune.init finetune.monitor detect.calibration detect.fpr run.runner run.workers"""
    assert set(relied_on.split()) <= set(keys())


@pytest.mark.parametrize("text", ["", "# nothing but a comment\n", "---\n", "{}"])
def test_an_empty_file_means_the_defaults(tmp_path: Path, text: str) -> None:
    file = tmp_path / "params.yaml"
    file.write_text(text)
    assert load(file) == Settings()


def test_what_a_file_says_holds_and_the_command_line_has_the_last_word(tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    file.write_text("seed: 3\nfinetune:\n  epochs: 5\n  labels: [cat, 7]\n  lr: 5e-4\n")
    got = load(file, ["finetune.epochs=6", " finetune.keep = ema", "data.novel=[8, nine]", "finetune.epochs=7"])
    assert (got.seed, got.finetune.epochs, got.finetune.lr, got.finetune.keep) == (3, 7, 5e-4, "ema")
    assert got.finetune.labels == ["cat", 7]
    assert got.data.novel == [8, "nine"]
    untouched = Settings().override({"seed": 3}).model_dump()
    assert {
        block: got.model_dump()[block] for block in ("pretrain", "score", "detect", "run")
    }.items() <= untouched.items()


def test_null_takes_a_setting_back_to_the_scenario(tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    file.write_text("finetune: {epochs: 5}")
    assert load(file, ["finetune.epochs=null"]) == Settings()


@pytest.mark.parametrize("text", ["1e-3", "1E-3", "1.e-3", "0.1e-2", "+1e-3", "1e-03", ".1e-2", "0.001", "1.0e-3"])
def test_learning_rates_are_numbers_however_they_are_written(text: str, tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    file.write_text(f"pretrain: {{lr: {text}}}")
    assert load(file, [f"finetune.lr={text}"]).finetune.lr == load(file).pretrain.lr == 1e-3


def test_a_name_that_only_looks_like_a_number_stays_a_name() -> None:
    assert load(None, ["data.batch=2026-W46"]).data.batch == "2026-W46"
    assert load(None, ["data.scenario='1e3'"]).data.scenario == "1e3"


WRONG_FILES = {
    "finetune: {epoch: 3}": "unknown setting 'finetune.epoch' in FILE: did you mean 'finetune.epochs'?",
    "seeds: 3": "unknown setting 'seeds' in FILE: did you mean 'seed'?",
    "fintune: {epochs: 3}": "unknown setting 'fintune' in FILE: did you mean 'finetune'?",
    "xyzzy: 3": "unknown setting 'xyzzy' in FILE: known are alarm, alarm.looks, ",
    "1: 2": "unknown setting '1' in FILE: known are ",
    "data: {1: 2}": "unknown setting 'data.1' in FILE: ",
    "seed: zero": "setting 'seed' in FILE should be a valid integer, not 'zero'",
    "seed: true": "setting 'seed' in FILE should be a valid integer, not True",
    "seed: -1": "setting 'seed' in FILE should be greater than or equal to 0, not -1",
    "finetune: {epochs: 2.5}": "setting 'finetune.epochs' in FILE should be a valid integer, not 2.5",
    "finetune: {epochs: 0}": "setting 'finetune.epochs' in FILE should be greater than or equal to 1, not 0",
    "pretrain: {lr: 0}": "setting 'pretrain.lr' in FILE should be greater than 0, not 0",
    "detect: {fpr: 1}": "setting 'detect.fpr' in FILE should be less than 1, not 1",
    "detect: {fpr: .nan}": "setting 'detect.fpr' in FILE should be a finite number, not nan",
    "pretrain: {lr: .inf}": "setting 'pretrain.lr' in FILE should be a finite number, not inf",
    "finetune: {keep: worst}": "setting 'finetune.keep' in FILE should be 'best', 'last', ",
    "finetune: {milestones: 50}": "setting 'finetune.milestones' in FILE should be a valid list, not 50",
    "finetune: {milestones: [50, 0]}": "setting 'finetune.milestones' in FILE should be greater than or equal to 1, ",
    "data: {known: [[1]]}": "setting 'data.known' in FILE should be a valid string, not [[1]]",
    "data: {batch: ../elsewhere}": "setting 'data.batch' in FILE should match pattern ",
    "data: {download: 1}": "setting 'data.download' in FILE should be a valid boolean, not 1",
    "seed: 'one\n\n  two'": "setting 'seed' in FILE should be a valid integer, not 'one\\ntwo'",
    "finetune: 3": "'finetune' in FILE is a block with keys below it, not 3",
    "finetune: [epochs]": "'finetune' in FILE is a block with keys below it, not ['epochs']",
    "- seed\n- data": "FILE must hold blocks such as 'finetune:' with keys below, not ['seed', 'data']",
    "just text": "FILE must hold blocks such as 'finetune:' with keys below, not 'just text'",
    "seed: 0\ndata: {scenario: [": "FILE is not valid YAML at line 2; correct it or start again from params.yaml",
    "seed: 0\n\tdata: 3": "FILE is not valid YAML at line 2; ",
    "seed: !!python/object/apply:os.getcwd []": "FILE is not valid YAML at line 1; ",
    "seed: " + "9" * 5000: "FILE is not valid YAML; ",
    "data: {known: " + "[" * 5000: "FILE is not valid YAML; ",
    "data: {known: [&a [x], " + ", ".join(["*a"] * 21) + "]}": "FILE is not valid YAML; ",
    "#" * 300_000: "FILE is not valid YAML; ",
    "seed: 2026-13-45": "FILE is not valid YAML; ",
    "data: {image_size: 1000000}": "setting 'data.image_size' in FILE should be less than or equal to 4096, not 1",
    "run: {threads: 1000000}": "setting 'run.threads' in FILE should be less than or equal to 1024, not 1000000",
    'data: {path: "a\\0b"}': "setting 'data.path' in FILE has a character that no name can have: 'a\\x00b'",
    'data: {known: ["\\ud800"]}': "setting 'data.known' in FILE has a character that no name can have: ['\\ud800']",
    "data: {batch: " + "x" * 101 + "}": "setting 'data.batch' in FILE should have at most 100 characters, not 'xxx",
}


@pytest.mark.parametrize("text", WRONG_FILES, ids=lambda text: text[:40])
def test_a_mistake_in_the_file_is_one_sentence_that_names_it(text: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        load(file)
    message = str(caught.value)
    assert message.startswith(WRONG_FILES[text].replace("FILE", str(file)))
    assert "\n" not in message
    assert caught.value.exit_code == 2


WRONG_CALLS = {
    "finetune.epochs": "--set takes key=value, such as finetune.epochs=3, not 'finetune.epochs'",
    "finetune.epoch=3": "unknown setting 'finetune.epoch' in --set: did you mean 'finetune.epochs'?",
    "finetne.epochs=3": "unknown setting 'finetne.epochs' in --set: did you mean 'finetune.epochs'?",
    "epochs=3": "unknown setting 'epochs' in --set: did you mean '",
    "=3": "unknown setting '' in --set: known are ",
    "finetune=3": "'finetune' in --set is a block with keys below it, not 3",
    "seed.x=3": "unknown setting 'seed.x' in --set: did you mean 'seed'?",
    "data.scenario.x=3": "unknown setting 'data.scenario.x' in --set: did you mean 'data.scenario'?",
    "finetune.epochs=many": "setting 'finetune.epochs' in --set should be a valid integer, not 'many'",
    "seed=": "setting 'seed' in --set should be a valid integer, not None",
    "data.known=[cat": "--set data.known: '[cat' is not a value YAML can read",
}


@pytest.mark.parametrize("text", WRONG_CALLS)
def test_a_mistake_on_the_command_line_is_one_sentence_that_names_it(text: str) -> None:
    with pytest.raises(UserError) as caught:
        load(None, ["seed=1", text])
    assert str(caught.value).startswith(WRONG_CALLS[text])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["missing.yaml", ""])
def test_a_file_that_cannot_be_read_is_one_sentence(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^cannot read the settings file .*: (No such file|Is a directory)[^\n]*$"):
        load(tmp_path / name)


def test_bytes_that_are_no_text_are_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    file.write_bytes(b"\xff\xfe\x00seed")
    with pytest.raises(UserError, match=r"is not valid YAML; correct it[^\n]*$"):
        load(file)


def test_every_default_can_be_set_to_itself_on_the_command_line() -> None:
    defaults = Settings().model_dump()
    for key in keys():
        block, _, name = key.rpartition(".")
        value = defaults[block][name] if block else defaults[name]
        assert load(None, [f"{key}={yaml.safe_dump(value).splitlines()[0]}"]) == Settings(), key


def test_settings_cannot_change_behind_a_runs_back() -> None:
    settings = Settings()
    other = settings.override({"finetune.epochs": 3})
    assert (settings.finetune.epochs, other.finetune.epochs) == (None, 3)
    with pytest.raises(ValueError, match="frozen"):
        settings.finetune.epochs = 3


@pytest.mark.parametrize(
    ("word", "known", "said"),
    [
        ("fmnist-neer", ["fmnist-near", "mnist-near"], "did you mean 'fmnist-near'?"),
        ("zzz", ["b", "a"], "known are a, b"),
        ("zzz", [f"name{i:02}" for i in range(13)], "name11, …"),
    ],
)
def test_the_nearest_name_is_offered(word: str, known: list[str], said: str) -> None:
    assert nearest(word, known).endswith(said)
