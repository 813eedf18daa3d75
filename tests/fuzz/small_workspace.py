"""A workspace with all kinds of files in it: a library, four finished weeks, of which two were reviewed and one was
incorporated, one on an encoder's features; alarms, MLflow's records, experts' figures. `python small_workspace.py DIR`.

Made in a process of its own: the tests fork, and threads of a process do not live on in its forks.
"""

import contextlib
import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from weeks_of_digits import FAST, Digits, answer, labelled, week

from erd.cli import main
from erd.data import library
from erd.integrations.mlflow_runs import Tracker
from erd.reporting import history
from erd.runs import alarm_ledger, configure
from erd.runs.folder import RunDir
from erd.runs.results import Metrics
from erd.settings.schema import Settings

INCORPORATED, REVIEWED, FRESH, ENCODED = "2026-W43", "2026-W44", "2026-W45", "2026-W46"
SMALL = ("pretrain.epochs=2", "finetune.epochs=1", "review.audit=10", "review.budget=10")
ON_FEATURES = ("model.encoder=tf_efficientnet_lite0", "model.net=head", "model.input_size=32", "detect.folds=2")


def make(place: Path) -> None:
    place.mkdir(parents=True)
    with contextlib.chdir(place):
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
        tracker = Tracker(RunDir(Path("runs", REVIEWED)))
        tracker.begin(configure.read(tracker.run))
        assert tracker.end("FINISHED")


def _params() -> None:
    chosen = Settings().override({key: yaml.safe_load(value) for key, _, value in (s.partition("=") for s in FAST)})
    small = chosen.override({key: yaml.safe_load(value) for key, _, value in (s.partition("=") for s in SMALL)})
    Path("params.yaml").write_text(yaml.safe_dump(small.override({"data.scenario": "own"}).model_dump()))


def _scans(digits: Digits) -> None:
    """Labelled images that can be taken in: files of class folders, the same in a table, and an archive."""
    from PIL import Image

    images, truth = digits.some({0: 3, 1: 3})
    rows = []
    for number, (pixels, digit) in enumerate(zip(images, truth, strict=True)):
        file = Path("scans", f"digit {digit}", f"{number}.png")
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file)
        rows.append({"path": file.as_posix(), "label": f"digit {digit}", "group": f"patient {number}"})
    pd.DataFrame(rows).to_csv("labels.csv", index=False)
    np.savez("scans.npz", x_train=images, y_train=np.array([f"digit {digit}" for digit in truth]))


if __name__ == "__main__":
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    make(Path(sys.argv[1]))
