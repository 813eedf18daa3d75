"""How ERD's scores come apart while its members learn, and how far apart MCD's are: the paper's pictures of it.

    python benchmarks/evolution.py --scenario fmnist-near --data DIR --output evolution.png
    python benchmarks/evolution.py --json

Above: what the members learn, epoch by epoch: S, V, the batch's novel and known images, each with the label they were
given (mean over the members, range as a shade). Middle: the scores of the batch's known and novel images after each
epoch, as boxes (quartiles; whiskers from 5% to 95%). Below: the final scores of ERD (best epoch on V) and of MCD.
"""

import argparse
import copy
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from erd.bench import cells, detectors, plan
from erd.bench.detectors import Given
from erd.bench.plan import Asked, Place
from erd.data import packed
from erd.reporting import figures
from erd.statistics import metrics
from erd.statistics.disagreement import disagreement
from erd.training import devices
from erd.training.batches import Mixture
from erd.training.loop import predict
from erd.training.members import CURVES, draw_labels, finetune_member

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Evolution:
    novel: np.ndarray  # N, the truth
    scores: np.ndarray  # epochs×N, of the members as they are after each epoch
    curves: list[pd.DataFrame]  # a member's history
    final: dict[str, np.ndarray]  # method → N scores


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", default="digits-near")
    parser.add_argument("--data", default=os.environ.get("ERD_DATA"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="a.b=v")
    parser.add_argument("--output", type=Path, default=Path("evolution.png"))
    parser.add_argument("--json", action="store_true", help="only the JSON object")
    asked = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="erd-evolution-") as scratch:
        here = Asked(data=asked.data, overrides=tuple(asked.set), root=Path(scratch))
        place = plan.place(asked.scenario, asked.seed, here)
        with devices.threads(place.settings.run.threads):
            found = follow(place)
    figures.save(draw(found, asked.scenario), asked.output)
    result = {"scenario": asked.scenario, "seed": asked.seed, "figure": asked.output.as_posix(), **summary(found)}
    if not asked.json:
        for epoch in result["epochs"]:
            print(f"epoch {epoch['epoch']:>3}: AUROC {epoch['auroc']:.3f}, median score of known images "
                  f"{epoch['known'][2]:.3f}, of novel ones {epoch['novel'][2]:.3f}")  # fmt: skip
    print(json.dumps(result))
    return 0


def follow(place: Place) -> Evolution:
    """Fine-tune the members once, and score the batch after each of their epochs."""
    cells.collect(place)
    cells.prepare(place, False)
    given = cells.hand_out(detectors.get("erd"), place, torch.device("cpu"))
    truth = packed.truth_of(place.run.batch)
    assert truth is not None, "the scenario knows what is novel"
    novel = truth == "novel"
    softmax: list[list[torch.Tensor]] = []
    curves = []
    for label in draw_labels(given.settings.finetune, given.classes, given.settings.seed):
        print(f"member c={label}", file=sys.stderr)
        of_member, history = one_member(given, label, novel)
        softmax.append(of_member)
        curves.append(pd.DataFrame(history))
    scores = np.stack([disagreement(torch.stack(epoch), "tv").numpy() for epoch in zip(*softmax, strict=True)])
    final = {}
    for name in ("erd", "mcd"):
        print(name, file=sys.stderr)
        method = detectors.get(name)
        detector = method.fit(cells.hand_out(method, place, torch.device("cpu")))
        final[name] = detector.score(given.batch).double().numpy()
    return Evolution(novel, scores, curves, final)


def one_member(given: Given, label: int, novel: np.ndarray) -> tuple[list[torch.Tensor], list[dict[str, float]]]:
    """Its softmax of the batch after each epoch, and its learning curves."""
    model, batch = copy.deepcopy(given.classifier), Mixture(given.batch)
    seen: list[torch.Tensor] = []

    def look(record: dict[str, float]) -> None:
        weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        seen.append(predict(model, [weights], batch))

    marks = np.where(novel, CURVES.index("batch_novel"), CURVES.index("batch_known"))
    unlabeled = [(given.batch, torch.from_numpy(marks).to(torch.int8))]
    train, val = ((part.images, part.labels) for part in (given.train, given.val))
    _, result = finetune_member(
        model, label, train, unlabeled, val, given.settings.finetune, given.settings.seed, on_epoch=look
    )
    return seen, result.history


def summary(found: Evolution) -> dict[str, Any]:
    def quantiles(values: np.ndarray) -> list[float]:
        return np.quantile(values, QUANTILES).tolist()

    epochs = [
        {"epoch": number, "auroc": metrics.auroc(scores[~found.novel], scores[found.novel]),
         "known": quantiles(scores[~found.novel]), "novel": quantiles(scores[found.novel])}
        for number, scores in enumerate(found.scores, 1)
    ]  # fmt: skip
    final = {
        name: {"auroc": metrics.auroc(scores[~found.novel], scores[found.novel]),
               "known": quantiles(scores[~found.novel]), "novel": quantiles(scores[found.novel])}
        for name, scores in found.final.items()
    }  # fmt: skip
    return {"epochs": epochs, "final": final}


def draw(found: Evolution, scenario: str) -> Figure:
    figure = Figure(figsize=(7.6, 8.6), layout="constrained")
    grid = figure.add_gridspec(3, 2)
    learned, boxes = figure.add_subplot(grid[0, :]), figure.add_subplot(grid[1, :])
    epochs = np.arange(1, len(found.scores) + 1)
    for column, (name, colour, line) in figures.CURVES.items():
        members = [curve[column].to_numpy() for curve in found.curves if column in curve]
        if members:
            learned.plot(epochs, np.mean(members, 0), line, color=colour, label=name)
            learned.fill_between(epochs, np.min(members, 0), np.max(members, 0), color=colour, alpha=0.12, linewidth=0)
    learned.set(ylabel="accuracy on the given labels", xlabel="epoch", ylim=(-0.02, 1.02), xticks=epochs)
    for which, colour, shift in ((~found.novel, figures.KNOWN, -0.16), (found.novel, figures.NOVEL, 0.16)):
        boxes.boxplot(
            [scores[which] for scores in found.scores], positions=epochs + shift, widths=0.26, whis=(5, 95),
            showfliers=False, manage_ticks=False, patch_artist=True, medianprops={"color": "black"},
            boxprops={"facecolor": colour, "alpha": 0.6, "linewidth": 0.6},
        )  # fmt: skip
    boxes.set(ylabel="disagreement", xlabel="epoch", xticks=epochs)
    for place, (name, scores) in enumerate(found.final.items()):
        panel = figure.add_subplot(grid[2, place])
        bins = np.linspace(scores.min(), scores.max(), 41).tolist()
        for which, colour, label in ((~found.novel, figures.KNOWN, "known"), (found.novel, figures.NOVEL, "novel")):
            panel.hist(scores[which], bins, color=colour, alpha=0.6, label=label)
        area = metrics.auroc(scores[~found.novel], scores[found.novel])
        panel.set(xlabel=f"score of {name.upper()}, AUROC {area:.3f}", ylabel="images", yscale="symlog")
        panel.legend(frameon=False, fontsize=8)
    handles, names = learned.get_legend_handles_labels()
    figure.legend(handles, names, title=scenario, loc="outside upper center", ncols=4, frameon=False, fontsize=8)
    for panel in figure.axes:
        panel.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    sys.exit(main())
