"""The stage encode: every image once, the same bytes whoever does it, and what the later stages make of features."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from chains import do
from PIL import Image
from scipy.stats import ks_2samp

from erd.base import files
from erd.base.errors import UserError
from erd.data import library, packed
from erd.data.feature_store import hashes_of
from erd.nets import encoders
from erd.runs import configure
from erd.runs.folder import RunDir
from erd.runs.results import Decided
from erd.settings import schema
from erd.settings.schema import Settings
from erd.weekly.stages import encode

# What is drawn: colours, and width of stripes. The last is novel.
PATTERNS = {"bricks": ((180, 60, 40), 4), "grass": ((60, 160, 50), 2), "sky": ((90, 140, 220), 16),
            "zebra": ((230, 230, 230), 3)}  # fmt: skip
SIDE = 32


def picture(name: str, seed: int) -> Image.Image:
    """A pattern in light and shadow, as photographs are, with a little noise."""
    colour, width = PATTERNS[name]
    rng = np.random.default_rng([seed, *name.encode()])
    rows = (np.arange(SIDE) + rng.integers(SIDE)) // width % 2
    cells = Image.fromarray(rng.integers(0, 256, (5, 5), dtype=np.uint8))
    light = np.asarray(cells.resize((SIDE, SIDE), Image.Resampling.BICUBIC)) / 255
    bright = (0.4 + 0.3 * rows[:, None] + 0.3 * light + rng.normal(0, 0.02, (SIDE, SIDE)))[..., None]
    return Image.fromarray((np.array(colour) * bright).clip(0, 255).astype(np.uint8))


def fill(folder: Path, counts: dict[str, int], start: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in counts.items():
        for number in range(start, start + count):
            picture(name, number).save(folder / f"{name}-{number:03}.png")
    return folder


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """75 labelled images in the library, and two weeks in the inbox: 20 images, of them 6 of no known class."""
    for name in ("bricks", "grass", "sky"):
        fill(tmp_path / "labeled" / name, {name: 25}, 0)
    for week in (1, 2):
        fill(tmp_path / "inbox" / f"W{week}", {"bricks": 5, "grass": 5, "sky": 4, "zebra": 6}, 100 * week)
    monkeypatch.chdir(tmp_path)
    library.take_in(Path("labeled"), None)
    return tmp_path


def own(batch: str, *more: str) -> Settings:
    words = ["data.scenario=own", f"data.batch={batch}", "data.settle=0", "data.least=10", "run.runner=serial",
             "pretrain.epochs=10", "finetune.epochs=5"]  # fmt: skip
    encoder = [] if "model.encoder=none" in more else ["model.input_size=64"]
    return configure.resolve(schema.load(None, [*words, *encoder, *more]))


def encoded(batch: str, *more: str) -> RunDir:
    settings = own(batch, *more)
    run = RunDir.of(settings)
    do(settings, run, "ingest", "encode")
    return run


def features(run: RunDir) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.features.iterdir()}


def stored() -> dict[str, int]:
    """The files of features in the library, and how many images each has."""
    found = Path("library/features").rglob("*.safetensors")
    return {path.as_posix(): len(files.load_tensors(path)[0]["hashes"]) for path in found}


def codes(path: Path) -> list[str]:
    return [code.tobytes().hex() for code in hashes_of(packed.read(path).rows())]


# ---------------------------------------------------------------------------------------------------- once


def test_a_week_costs_its_new_images_only(workspace: Path) -> None:
    first = encoded("W1")
    before = stored()
    assert sum(before.values()) == 75 + 20
    settings, second = own("W2"), RunDir.of(own("W2"))
    do(settings, second, "ingest")
    assert sum(job.epochs for job in encode.STAGE.jobs(settings, second)) == 20
    do(settings, second, "encode")
    assert sum(count for path, count in stored().items() if path not in before) == 20
    kept = [packed.read(run.features_of(run.labeled)).images for run in (first, second)]
    assert torch.equal(*kept)
    again = do(settings, second, "ingest", "encode")
    assert again[-1].reused
    assert sum(stored().values()) == 115


def test_processes_write_the_bytes_of_the_serial_runner(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serial = features(encoded("W1"))
    assert set(serial) == {"labeled.safetensors", "batch.safetensors", "holdout.safetensors", "encode.json",
                           "older.safetensors"}  # fmt: skip
    elsewhere = workspace / "elsewhere"
    elsewhere.mkdir()
    for name in ("labeled", "inbox"):
        (elsewhere / name).symlink_to(workspace / name)
    monkeypatch.chdir(elsewhere)
    library.take_in(Path("labeled"), None)
    assert features(encoded("W1", "run.runner=process", "run.workers=2")) == serial
    assert len(stored()) > 1, "each process adds a file"


def test_an_interrupted_encode_goes_on_where_it_was(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed process has added is not encoded again, and the features are those of a run that was not killed."""
    settings = own("W1")
    run = RunDir.of(settings)
    do(settings, run, "ingest")
    (job,) = encode.STAGE.jobs(settings, run)
    todo = [part._replace(rows=part.rows[:13], hashes=part.hashes[:13]) for part in job.arguments[2]]
    encode.encode(settings, run, todo, 0)
    done = sum(len(part.rows) for part in todo)
    assert sum(stored().values()) == done == 26
    (rest,) = encode.STAGE.jobs(settings, run)
    assert rest.epochs == 95 - done
    do(settings, run, "encode")
    assert sum(stored().values()) == 95
    assert not encode.STAGE.jobs(settings, run)
    pieces = features(run)
    monkeypatch.chdir(_other(workspace))
    assert features(encoded("W1")) == pieces


def _other(workspace: Path) -> Path:
    """The same workspace, with nothing encoded."""
    other = workspace / "other"
    other.mkdir()
    for name in ("labeled", "inbox"):
        (other / name).symlink_to(workspace / name)
    library.take_in(other / "labeled", None, other / "library")
    return other


def test_an_image_that_is_there_twice_is_encoded_once(workspace: Path) -> None:
    """Pixels count, not files: a photograph of last week is sent again in another format."""
    Image.open("inbox/W1/sky-100.png").save("inbox/W1/again.bmp")
    Image.open("labeled/sky/sky-003.png").save("inbox/W1/known.bmp")
    run = encoded("W1")
    assert len(codes(run.batch)) == 22
    assert sum(stored().values()) == 95
    seen = packed.read(run.features_of(run.batch)).images
    ids = files.load_table(packed.manifest(run.batch))["id"].tolist()
    assert torch.equal(seen[ids.index("again.bmp")], seen[ids.index("sky-100.png")])


def test_a_damaged_file_of_features_is_made_again(workspace: Path) -> None:
    run = encoded("W1")
    before = features(run)
    for name in stored():
        Path(name).unlink()
        Path(name).write_bytes(b"no tensors")
    run.features_of(run.batch).unlink()
    do(own("W1"), run, "encode")
    assert features(run) == before


@pytest.mark.parametrize("setting", ["model.input_size=96", "model.weights=mine.pth"])
def test_another_size_or_other_weights_encode_all_images_again(workspace: Path, setting: str) -> None:
    torch.save({name: tensor * 0.5 for name, tensor in encoders.load().net.state_dict().items()}, "mine.pth")
    run = encoded("W1")
    before = features(run)
    do(own("W1", setting), run, "encode")
    assert sum(stored().values()) == 2 * 95
    assert all(features(run)[name] != before[name] for name in ("labeled.safetensors", "batch.safetensors"))
    do(own("W1"), run, "encode")
    assert features(run) == before
    assert sum(stored().values()) == 2 * 95, "the first ones are still there"


def test_weights_that_were_written_anew_under_their_old_name_are_read_again(workspace: Path) -> None:
    weights = encoders.load().net.state_dict()
    torch.save(weights, "mine.pth")
    run = encoded("W1", "model.weights=mine.pth")
    torch.save({name: tensor * 0 for name, tensor in weights.items()}, "mine.pth")
    do(own("W1", "model.weights=mine.pth"), run, "encode")
    assert packed.read(run.features_of(run.batch)).images.abs().max() == 0


# ---------------------------------------------------------------------------------------------------- what it leaves


def test_features_are_those_of_the_encoder_and_stand_in_the_order_of_the_images(workspace: Path) -> None:
    run = encoded("W1")
    lite = encoders.load(size=64)
    for path in (run.labeled, run.batch):
        whole = packed.read(path)
        rows = whole.rows()
        expected = lite.features(rows.take(torch.arange(len(rows)))).half()
        seen = packed.read(run.features_of(path))
        assert torch.equal(seen.images, expected[:, None, None, :])
    labeled, seen = packed.read(run.labeled), packed.read(run.features_of(run.labeled))
    assert seen.labels is not None
    assert seen.part is not None
    assert torch.equal(seen.labels, labeled.labels)  # type: ignore[arg-type]
    assert torch.equal(seen.part, labeled.part)  # type: ignore[arg-type]
    assert seen.facts["classes"] == ["bricks", "grass", "sky"]
    assert len(packed.read(run.features_of(run.holdout))) == 0


def test_encode_json_says_what_the_nets_see(workspace: Path) -> None:
    found = json.loads(encoded("W1").encoded.read_text())
    bundled = encoders.BUNDLED["tf_efficientnet_lite0"].sha256
    assert found == {"encoder": "tf_efficientnet_lite0", "weights": bundled, "input_size": 64, "features": 1432,
                     "warnings": []}  # fmt: skip


def test_without_an_encoder_the_nets_see_images(workspace: Path) -> None:
    settings = own("W1", "model.encoder=none", "pretrain.epochs=1", "pretrain.threads=1")
    run = RunDir.of(settings)
    do(settings, run, "ingest", "encode", "pretrain")
    assert json.loads(run.encoded.read_text())["encoder"] is None
    assert set(features(run)) == {"encode.json"}
    assert not Path("library/features").exists()
    assert run.seen(run.batch, settings) == run.batch
    assert files.load_facts(run.pretrained)["net"]["image_size"] == SIDE


def test_labelled_pixels_are_not_copied_into_the_run(workspace: Path) -> None:
    run = encoded("W1")
    pixels = 75 * SIDE * SIDE * 3
    assert run.labeled.stat().st_size < pixels / 50
    assert run.batch.stat().st_size > 20 * SIDE * SIDE * 3
    whole = packed.read(run.labeled).rows()
    shown = whole.take(torch.arange(len(whole))).numpy()
    first = files.load_table(packed.manifest(run.labeled))["id"][0]
    np.testing.assert_array_equal(shown[0], np.asarray(Image.open(Path("labeled") / first)))


def test_near_copies_of_training_images_are_warned_of(workspace: Path) -> None:
    """Each of them: saved again as JPEG, or brighter and with less contrast."""
    settings = own("W1")
    run = RunDir.of(settings)
    do(settings, run, "ingest")
    listed = files.load_table(packed.manifest(run.labeled))
    trained = listed.loc[listed["part"] == "train", "id"].tolist()[:12]
    for number, name in enumerate(trained):
        image = Image.open(Path("labeled") / name)
        if number % 2:
            image.save(f"inbox/W1/{number:02}.jpg", quality=95)
        else:
            image.point(lambda value: round(value * 0.7 + 60)).save(f"inbox/W1/{number:02}.png")
    do(settings, run)
    (warning,) = json.loads(run.encoded.read_text())["warnings"]
    first = f"00.png ({trained[0]}), 01.jpg ({trained[1]}), 02.png ({trained[2]}), …"
    assert warning == f"12 images of the batch are near copies of training images: {first}"
    assert warning in json.loads(run.metrics.read_text())["warnings"]
    assert not any("near cop" in note for note in json.loads(run.ingested.read_text())["warnings"]), "told once"


def test_a_photograph_that_is_sent_again_is_warned_of(workspace: Path) -> None:
    settings = own("W1")
    run = RunDir.of(settings)
    do(settings, run, "ingest")
    listed = files.load_table(packed.manifest(run.labeled))
    name = listed.loc[listed["part"] == "train", "id"].tolist()[0]
    Image.open(Path("labeled") / name).save("inbox/W1/again.bmp")
    do(settings, run, "ingest", "encode")
    expected = f"1 image of the batch is a near copy of a training image: again.bmp ({name})"
    assert json.loads(run.encoded.read_text())["warnings"] == [expected]


# ---------------------------------------------------------------------------------------------------- the whole chain


def test_an_inbox_runs_to_flags_on_features(workspace: Path) -> None:
    settings = own("W1")
    run = RunDir.of(settings)
    do(settings, run)
    table = pd.read_parquet(run.scores)
    assert list(table.columns)[:4] == ["id", "score", "p_value", "flagged"]
    assert {"disagreement", "neighbours"} <= set(table.columns)
    zebra = table["id"].str.startswith("zebra")
    assert table.loc[zebra, "score"].min() > table.loc[~zebra, "score"].median()
    metrics = json.loads(run.metrics.read_text())
    assert (metrics["images"], metrics["auroc"], metrics["disagreement_auroc"]) == (20, None, None), "nobody knows"
    assert metrics["val_accuracy"] == 1, "features of these patterns are easy"
    # What a head sees as 0 and 1 are mean and spread of each feature in S, but none of next to no spread.
    seen = packed.read(run.features_of(run.labeled)).rows("train")
    values = seen.take(torch.arange(len(seen))).flatten(1).double()
    spread = values.std(0, correction=0).numpy()
    tensors, _ = files.load_tensors(run.pretrained)
    mean, std = (next(v for k, v in tensors.items() if k.split("/")[-1] == name).flatten() for name in ("mean", "std"))
    np.testing.assert_allclose(mean, values.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(std, np.maximum(spread, 0.05 * np.median(spread)), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("join", ["neighbours", "none"])
def test_a_trial_tells_how_good_each_score_is_alone(workspace: Path, join: str) -> None:
    """Without a join the score is the disagreement, and nothing is told twice."""
    fill(workspace / "labeled" / "zebra", {"zebra": 25}, 0)
    library.take_in(Path("labeled"), None)
    settings = own("trial", "data.novel=[zebra]", f"score.join={join}", "data.batch_novel=12", "data.batch_known=15")
    assert settings.data.inbox is None
    run = RunDir.of(settings)
    do(settings, run)
    table, metrics = pd.read_parquet(run.scores), json.loads(run.metrics.read_text())
    parts = ["disagreement", "neighbours"]
    assert [name in table for name in parts] == [join == "neighbours"] * 2
    assert [metrics[f"{name}_auroc"] is not None for name in parts] == [join == "neighbours"] * 2
    assert [metrics[f"holdout_{name}_auroc"] is not None for name in parts] == [join == "neighbours"] * 2
    assert metrics["auroc"] > (0.8 if join == "neighbours" else 0.5)
    assert metrics["images"] == 27


def test_the_next_week_takes_over_the_classifier(workspace: Path) -> None:
    """The labelled images, and so their features, are the same."""
    for batch in ("W1", "W2"):
        settings = own(batch)
        done = do(settings, RunDir.of(settings), "ingest", "encode", "pretrain")
    assert done[-1].reused
    assert Path("runs/W1/pretrained.safetensors").read_bytes() == Path("runs/W2/pretrained.safetensors").read_bytes()


# ---------------------------------------------------------------------------------------------------- one sentence


def test_what_cannot_work_is_said_before_anything_is_written(workspace: Path) -> None:
    for chosen, sentence in (
        ("model.encoder=tf_eficientnet_lite0", "^there is no encoder 'tf_eficientnet_lite0': did you mean 'tf_effi"),
        ("model.weights=gone.pth", "^there is no file of weights at gone.pth; correct model.weights$"),
        ("model.encoder=resnet18", "^the weights of encoder 'resnet18' are not here: name their file"),
    ):
        with pytest.raises(UserError, match=sentence):
            encoded("W1", chosen)
    assert not Path("runs").exists()
    assert not Path("library/features").exists()


@pytest.mark.parametrize("runner", ["serial", "process"])
def test_weights_of_another_net_are_one_sentence(workspace: Path, runner: str) -> None:
    torch.save({"some.weight": torch.zeros(3)}, "foreign.pth")
    sentence = r"^foreign\.pth is not for the encoder 'tf_efficientnet_lite0': no tensor fits conv_stem"
    with pytest.raises(UserError, match=sentence):
        encoded("W1", "model.weights=foreign.pth", f"run.runner={runner}", "run.workers=1")
    assert not stored()


def test_validation_images_are_not_taken_for_another_kind_than_those_the_batch_is_compared_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are random images of one pool, and the directions of comparison are found from both."""
    for name in ("bricks", "grass", "sky"):
        fill(tmp_path / "labeled" / name, {name: 130}, 0)
    fill(tmp_path / "inbox" / "W1", {"bricks": 10, "grass": 10, "sky": 10}, 200)
    monkeypatch.chdir(tmp_path)
    library.take_in(Path("labeled"), None)
    settings = own("W1")
    run = RunDir.of(settings)
    do(settings, run, "ingest", "encode", "pretrain", "finetune", "score")
    drawn = {part: files.load_table(path) for part, path in
             {"val": run.validation_scores, "calibration": run.clean_scores}.items()}  # fmt: skip
    assert len(drawn["val"]) > 30
    assert ks_2samp(drawn["val"]["candidates"], drawn["calibration"]["candidates"]).pvalue > 0.01
    assert not [said for said in Decided.read(run).warnings if "not of one kind" in said]
