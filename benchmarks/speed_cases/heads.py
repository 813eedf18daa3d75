"""(l) The stage finetune with heads on features: all members and their folds at once, and one after another."""

import torch
from measuring import Asked, Case, Figure, Figures, Goal, in_turn, medians, over, timed
from random_runs import finetuned, random_run, settings_of, without_members

from erd import nets
from erd.data import packed
from erd.nets import FEATURES
from erd.runs.folder import RunDir
from erd.settings.schema import Settings
from erd.training.loop import Fit
from erd.training.members import save_net

WIDTH, CLASSES = 1432, 6  # of EfficientNet-Lite0's features, and of a sorting plant's waste
MEMBERS, FOLDS = 3, 4
# Four weeks are learned together. Here all of them are one batch, which is the same work but for the folds of three.
SIZES = {"train": 1100, "val": 250, "batch": 1000}


def measure(asked: Asked) -> Figures:
    chosen = ["run.runner=serial", f"finetune.members={MEMBERS}", f"detect.folds={FOLDS}"]
    # What is asked for on GPUs is no way of training at once, and changes nothing else on a CPU.
    at_once, one_by_one = (settings_of("own", [*chosen, f"finetune.graphs={way}"]) for way in ("false", "true"))
    run = _encoded(at_once, random_run(asked.place / "run", classes=CLASSES, side=8, **SIZES))

    def seconds(settings: Settings) -> float:
        without_members(run)
        return timed(lambda: finetuned(settings, run))

    times = in_turn({"in turn": lambda: seconds(one_by_one), "at once": lambda: seconds(at_once)}, asked.repeat)
    return {"l.heads": Figure(over(times, "in turn", "at once"), details={"seconds": medians(times)})}


def _encoded(settings: Settings, run: RunDir) -> RunDir:
    """With features, which are noise too, and an untrained classifier of them."""
    generator = torch.Generator().manual_seed(0)
    for path in (run.labeled, run.batch):
        count = len(packed.read(path))
        packed.pack_features(run.features_of(path), torch.randn(count, WIDTH, generator=generator).half(), path)
    classes = packed.read(run.labeled).facts["classes"]
    model = nets.build(settings.model.net or "", channels=WIDTH, image_size=FEATURES, classes=len(classes), seed=0)
    save_net(run.pretrained, model, Fit([model.state_dict()]), {"classes": classes})
    return run


CASE = Case(
    "l",
    "the stage finetune with heads on features, members and folds at once, and one after another",
    {"l.heads": Goal(f"{MEMBERS} heads in {FOLDS} folds at once, against one after another", 3.0, at_least=True)},
    measure,
)
