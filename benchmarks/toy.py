"""Too little, too much and regularised disagreement, in two dimensions: the paper's picture, made by this software.

    python benchmarks/toy.py --output toy.png

An image here has two pixels, so every possible one is a place in the picture. There are two known classes, and a batch
with known images of both and a novel cluster. Two members, each the paper's MLP, come about in three ways:

- too little: trained on S alone, from different weights (a vanilla ensemble);
- too much: Algorithm 1 without early stopping: the last of 1,000 epochs, when most labels are known by heart;
- regularised: Algorithm 1 as it is: the same training, but each member at its best epoch on V.

Grey is the members' disagreement (total variation) on every image, lines are where each of them changes its mind.
Printed: the mean disagreement on the batch's known and novel images, how many of them the members disagree on (take
different classes), and the AUROC of the score.
"""

import argparse
import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from torch import Tensor

from erd.base.seeds import derive
from erd.data.packed import Rows
from erd.nets import Classifier
from erd.nets.mlp import mlp
from erd.reporting import figures
from erd.settings.schema import Finetune
from erd.statistics import metrics
from erd.statistics.disagreement import disagreement
from erd.training.batches import Mixture
from erd.training.loop import Examples, Fit, Recipe, fit, predict
from erd.training.members import finetune_member

CENTRES, SPREAD = ((62, 174), (188, 182), (178, 68)), 18  # of class 0, class 1 and the novel cluster; pixel values
TRAIN, VAL, BATCH_KNOWN, BATCH_NOVEL = 50, 500, 8, 24  # images of each class
SIDE = 256
PRETRAIN_EPOCHS, EPOCHS, PATIENCE = 30, 1000, 60
PANELS = {"too little": "vanilla ensemble", "too much": "no early stopping", "regularised": "ERD"}
# Apart in grey and to the colour-blind, by shape too: filled in S, hollow in the batch.
MARKS = ((figures.KNOWN, "o", "class 0"), ("#e08e0b", "s", "class 1"), (figures.NOVEL, "^", "novel"))


@dataclass(frozen=True)
class Toy:
    """Images N×1×1×2 and their classes; 2 is novel."""

    train: Tensor
    train_classes: Tensor
    val: Tensor
    val_classes: Tensor
    batch: Tensor
    batch_classes: Tensor

    @property
    def novel(self) -> Tensor:
        return self.batch_classes == 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("toy.png"), help="the figure (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="only the JSON object")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the nets are tiny
    toy = make(arguments.seed)
    ensembles = {
        "too little": [pretrained(toy, arguments.seed, number) for number in range(2)],
        "too much": erd(toy, arguments.seed, schedule(EPOCHS, keep="last")),
        "regularised": erd(toy, arguments.seed, schedule(EPOCHS, patience=PATIENCE)),
    }
    figures.save(draw(toy, ensembles), arguments.output)
    rows = [{"panel": panel} | measured(toy, members) for panel, members in ensembles.items()]
    if not arguments.json:
        for row in rows:
            print("  ".join(f"{name} {value}" for name, value in row.items()))
        print(f"drawn: {arguments.output}")
    print(json.dumps({"seed": arguments.seed, "rows": rows, "figure": arguments.output.as_posix()}))


def make(seed: int) -> Toy:
    """Round clusters, cut to whole pixel values."""
    generator = torch.Generator().manual_seed(derive(seed, "toy"))

    def some(*counts: int) -> tuple[Tensor, Tensor]:
        classes = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
        around = torch.tensor(CENTRES, dtype=torch.float32)[classes]
        values = around + SPREAD * torch.randn(len(classes), 2, generator=generator)
        return values.round().clamp(0, SIDE - 1).byte().view(-1, 1, 1, 2), classes

    return Toy(*some(TRAIN, TRAIN), *some(VAL, VAL), *some(BATCH_KNOWN, BATCH_KNOWN, BATCH_NOVEL))


def pretrained(toy: Toy, seed: int, number: int) -> tuple[Classifier, Fit]:
    """A classifier of the known images; `number` tells apart those of an ensemble.

    Its best epoch on V is that of the lowest loss: by accuracy the first ones, still unsure, are as good as the last.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "toy", "net", number))
        model = Classifier(mlp(2, 1, 2), channels=2)
    model.normalise([0.5, 0.5], [0.25, 0.25])
    known = Examples(Mixture(Rows(toy.train)), toy.train_classes)
    val = Examples(Mixture(Rows(toy.val)), toy.val_classes)
    generator = torch.Generator().manual_seed(derive(seed, "toy", "pretrain", number))
    result = fit(model, known, val, Recipe.of(schedule(PRETRAIN_EPOCHS, monitor="loss")), generator)
    model.load_state_dict(result.snapshots[0])
    return model, result


def erd(toy: Toy, seed: int, finetune: Finetune) -> list[tuple[Classifier, Fit]]:
    """Algorithm 1 with a member for each class."""
    start, _ = pretrained(toy, seed, 0)
    curves = toy.novel.to(torch.int8) + 1
    members = []
    for label in range(2):
        members.append(
            finetune_member(copy.deepcopy(start), label, (Rows(toy.train), toy.train_classes),
                            [(Rows(toy.batch), curves)], (Rows(toy.val), toy.val_classes), finetune, seed)
        )  # fmt: skip
    return members


def softmax(members: list[tuple[Classifier, Fit]], images: Tensor) -> Tensor:
    return torch.stack([predict(model, result.snapshots, Mixture(Rows(images))) for model, result in members])


def measured(toy: Toy, members: list[tuple[Classifier, Fit]]) -> dict[str, Any]:
    found = softmax(members, toy.batch)
    score, differ = disagreement(found), disagreement(found, "argmax")
    known, novel = score[~toy.novel], score[toy.novel]
    return {
        "known": round(known.mean().item(), 3),
        "novel": round(novel.mean().item(), 3),
        "known_disagreed": round(differ[~toy.novel].mean().item(), 3),
        "novel_disagreed": round(differ[toy.novel].mean().item(), 3),
        "auroc": round(metrics.auroc(known.numpy(), novel.numpy()), 3),
        "best_epochs_on_val": [result.best_epoch for _, result in members],
        "epochs": [len(result.history) for _, result in members],
    }


def draw(toy: Toy, ensembles: dict[str, list[tuple[Classifier, Fit]]]) -> Figure:
    figure = Figure(figsize=(9.6, 3.9), layout="constrained")
    across, up = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="xy")
    everywhere = torch.stack([across, up], dim=-1).byte().view(-1, 1, 1, 2)
    panels = figure.subplots(1, 3, sharex=True, sharey=True)
    for panel, (name, members) in zip(panels, ensembles.items(), strict=True):
        found = softmax(members, everywhere)
        grey = disagreement(found).view(SIDE, SIDE).numpy()
        image = panel.imshow(grey, cmap="Greys", vmin=0, vmax=1.7, origin="lower", interpolation="bilinear")
        for member, line in zip(found, ("solid", "dashed"), strict=True):
            side = member[:, 1].view(SIDE, SIDE).numpy()
            panel.contour(side, levels=[0.5], colors=figures.NEUTRAL, linewidths=1.0, linestyles=line)
        _points(panel, toy)
        panel.set_title(f"{name}: {PANELS[name]}", fontsize=10)
        panel.set(xticks=[], yticks=[])
    bar = figure.colorbar(image, ax=panels, shrink=0.8, pad=0.01, boundaries=torch.linspace(0, 1, 101).tolist())
    bar.set_ticks([0, 0.5, 1])
    bar.ax.tick_params(labelsize=8)
    bar.set_label("disagreement", fontsize=9)
    figure.legend(handles=_legend(), loc="outside lower center", ncols=8, frameon=False, fontsize=8, columnspacing=1.2)
    return figure


def _points(panel: Axes, toy: Toy) -> None:
    for code, (colour, shape, _) in enumerate(MARKS):
        x, y = toy.train[toy.train_classes == code].view(-1, 2).T.numpy()
        panel.scatter(x, y, s=9, marker=shape, color=colour, alpha=0.45, linewidths=0)
        x, y = toy.batch[toy.batch_classes == code].view(-1, 2).T.numpy()
        panel.scatter(x, y, s=24, marker=shape, facecolors="none", edgecolors=colour, linewidths=1.3, zorder=3,
                      path_effects=[withStroke(linewidth=2.6, foreground="white")])  # fmt: skip


def _legend() -> list[Line2D]:
    def dots(colour: str, shape: str, name: str, fill: str) -> Line2D:
        return Line2D([], [], linestyle="", marker=shape, color=colour, markerfacecolor=fill, label=name)

    entries = [dots(colour, shape, f"{name}, S", colour) for colour, shape, name in MARKS[:2]]
    entries += [dots(colour, shape, f"{name}, batch", "white") for colour, shape, name in MARKS]
    entries.append(Line2D([], [], color=figures.NEUTRAL, linestyle="-", label="member 1"))
    entries.append(Line2D([], [], color=figures.NEUTRAL, linestyle="--", label="member 2"))
    return entries


def schedule(epochs: int, **special: Any) -> Finetune:
    plain = Finetune(epochs=epochs, batch_size=32, optimizer="adam", lr=1e-3, momentum=0.0, weight_decay=0.0,
                     milestones=[], gamma=1.0, augment=False, keep="best", patience=0)  # fmt: skip
    return plain.model_copy(update=special)


if __name__ == "__main__":
    main()
