"""A workspace with all kinds of files in it: a library, four finished weeks, of which two were reviewed and one was
incorporated, one on an encoder's features; alarms, MLflow's records, experts' figures."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from PIL import Image
from weeks_of_digits import FAST, Digits, answer, labelled, week

from erd.cli import main
from erd.data import library
from erd.integrations.mlflow_runs import Tracker
from erd.reporting import history
from erd.runs import alarm_ledger, configure
from erd.runs.folder import RunDir
from erd.runs.results import Metrics
from erd.settings import schema
from erd.settings.schema import Settings

INCORPORATED, REVIEWED, FRESH, ENCODED = "2026-W43", "2026-W44", "2026-W45", "2026-W46"
SMALL = ("pretrain.epochs=2", "finetune.epochs=1", "review.audit=10", "review.budget=10")
ON_FEATURES = ("model.encoder=tf_efficientnet_lite0", "model.net=head", "model.input_size=32", "detect.folds=2")


def fill() -> None:
    """Make it in the current folder."""
    digits = Digits()
    images, truth = digits.some(dict.fromkeys(range(4), 40))
    library.save(labelled(images, [f"digit {digit}" for digit in truth]))
    _scans(digits)
    known = dict.fromkeys(range(4), 8)
    for name, new, asked in ((INCORPORATED, 4, ()), (REVIEWED, 5, ()), (FRESH, 4, ()), (ENCODED, 4, ON_FEATURES)):
        run, said = week(digits, name, known | {new: 12}, *SMALL, *asked)
        verdict = Metrics.read(run).verdict
        alarm_ledger.enter(run.alarms, "own", name, verdict.alarm_p, verdict.alarm_level, verdict.weeks_p)
        if name in (INCORPORATED, REVIEWED):
            rows = list(said)
            answer(run, {image: said[image] for image in rows[::2]})
            answer(run, {image: said[image] for image in rows[::3]}, on="audit")
            history.keep(run)
    assert main(["--quiet", "incorporate", "--batch", INCORPORATED]) == 0
    assert main(["--quiet", "sensitivity", "--batch", ENCODED]) == 0
    assert main(["--quiet", "review", "--batch", REVIEWED, "--export", "answers.csv"]) == 0
    library.hold(Path("library"), "mlp", library.Held({"digit 4": 60}, []))
    _params()
    if os.environ.get("FUZZ"):  # MLflow takes its time
        tracker = Tracker(RunDir(Path("runs", REVIEWED)))
        tracker.begin(configure.read(tracker.run))
        assert tracker.end("FINISHED")


def _params() -> None:
    chosen = schema.overridden(Settings(), [*FAST, *SMALL, "data.scenario=own"])
    Path("params.yaml").write_text(yaml.safe_dump(chosen.model_dump()))


def _scans(digits: Digits) -> None:
    """Labelled images that can be taken in: files of class folders, the same in a table, and an archive."""
    images, truth = digits.some({0: 3, 1: 3})
    rows = []
    for number, (pixels, digit) in enumerate(zip(images, truth, strict=True)):
        file = Path("scans", f"digit {digit}", f"{number}.png")
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file)
        rows.append({"path": file.as_posix(), "label": f"digit {digit}", "group": f"patient {number}"})
    pd.DataFrame(rows).to_csv("labels.csv", index=False)
    np.savez("scans.npz", x_train=images, y_train=np.array([f"digit {digit}" for digit in truth]))
