"""The pictures of a run: learning curves, score histogram, ROC, what is found after how many looks, the most novel
images. Each is one function."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from erd.base import files
from erd.data import packed
from erd.runs import results
from erd.runs.folder import RunDir
from erd.statistics import metrics

KNOWN, NOVEL, NEUTRAL, FAINT = "#3b6fb6", "#d1495b", "#3c3c3c", "#9a9a9a"
CURVES = {  # column of the history → label, colour, line
    "train_accuracy": ("train", NEUTRAL, "-"),
    "val_accuracy": ("validation", NEUTRAL, "--"),
    "batch_novel_accuracy": ("batch, novel → c", NOVEL, "-"),
    "batch_known_accuracy": ("batch, known → c", KNOWN, "-"),
    "batch_accuracy": ("batch → c", FAINT, "-"),
}
RANKED = {  # column of a table of scores → label, colour
    "score": ("ERD", NOVEL),
    "entropy": ("entropy of the mean", KNOWN),
    "max_softmax": ("max softmax", FAINT),
}
SHEET = (4, 10)  # rows and columns of the sheet of images

History = Sequence[Mapping[str, float]]


def draw_all(
    run: RunDir,
    classes: Sequence[str],
    batch: pd.DataFrame,
    members: Mapping[int, History],
    best: Mapping[int, int],
) -> list[Path]:
    """All figures of a run as PNG; those that need the truth only where it is known."""
    reference = results.scores_of_known(run.reference_scores)["score"].to_numpy()
    cut = batch.loc[batch["flagged"], "score"].min()  # NaN where nothing is flagged
    names = {label: classes[label] for label in members}
    drawn = {
        "learning_curves": learning_curves(members, best, names),
        "scores": score_histogram(batch, reference, cut),
        "most_novel": sheet(run, batch),
    }
    if "truth" in batch and batch["truth"].nunique() == 2:
        drawn |= {"roc": roc(batch), "looks": looks(batch)}
    return [save(figure, run.figures / f"{name}.png") for name, figure in drawn.items()]


def learning_curves(members: Mapping[int, History], best: Mapping[int, int], names: Mapping[int, str]) -> Figure:
    """A panel a member: accuracies over the epochs, with the epoch that was kept marked."""
    columns = min(len(members), 5)
    rows = -(-len(members) // columns)
    figure = Figure(figsize=(1.2 + 2.5 * columns, 1.0 + 2.3 * rows), layout="constrained")
    panels = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    for panel, (label, history) in zip(panels, members.items(), strict=False):
        table = pd.DataFrame(history)
        for column, (text, colour, line) in CURVES.items():
            if column in table:
                panel.plot(table["epoch"], table[column], line, color=colour, label=text, linewidth=1.4)
        panel.axvline(best[label], color=FAINT, linestyle=":", label="best on validation")
        panel.set_title(f"c = {names[label]}", fontsize=9)
        panel.set_ylim(-0.02, 1.02)
        panel.set_xlim(1, max(2, len(table)))
        plain(panel)
    for panel in panels[len(members) :]:
        panel.set_axis_off()
    figure.supxlabel("epoch", fontsize=9)
    figure.supylabel("accuracy", fontsize=9)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5, frameon=False, fontsize=8)
    return figure


def score_histogram(batch: pd.DataFrame, reference: np.ndarray, cut: float) -> Figure:
    """Scores of the batch, known and novel apart where the truth is known; calibration as an outline; the threshold."""
    figure = Figure(figsize=(6.2, 3.4), layout="constrained")
    axes = figure.subplots()
    bins = np.linspace(0, max(batch["score"].max(), reference.max(initial=0), 1e-6), 41).tolist()
    if "truth" in batch:
        for truth, colour in (("known", KNOWN), ("novel", NOVEL)):
            values = batch.loc[batch["truth"] == truth, "score"]
            if len(values):
                axes.hist(values, bins, color=colour, alpha=0.6, label=f"{truth} ({len(values):,})")
    else:
        axes.hist(batch["score"], bins, color=NEUTRAL, alpha=0.5, label=f"batch ({len(batch):,})")
    if len(reference):
        # Scaled to as many images as the batch could hold, so that the shapes compare.
        weights = np.full(len(reference), len(batch) / len(reference) / 2)
        label = f"calibration, scaled ({len(reference):,})"
        axes.hist(reference, bins, weights=weights, histtype="step", color=NEUTRAL, linewidth=1, label=label)
    if np.isfinite(cut):
        axes.axvline(cut, color=NEUTRAL, linestyle="--", linewidth=1, label="threshold")
    axes.set_xlabel("score (larger = more novel)")
    axes.set_ylabel("images")
    axes.set_yscale("symlog", linthresh=10)
    figure.legend(loc="outside upper center", ncols=4, frameon=False, fontsize=8)
    plain(axes)
    return figure


def roc(batch: pd.DataFrame) -> Figure:
    """Caught novel images against known ones flagged wrongly, beside what the classifier alone could do."""
    figure = Figure(figsize=(4.2, 3.9), layout="constrained")
    axes = figure.subplots()
    novel = (batch["truth"] == "novel").to_numpy()
    for column, (name, colour) in RANKED.items():
        values = batch[column].to_numpy()
        false_positive, true_positive = metrics.roc(values[~novel], values[novel])
        area = metrics.auroc(values[~novel], values[novel])
        axes.plot(false_positive, true_positive, color=colour, label=f"{name}, AUROC {area:.3f}")
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=0.7, linestyle=":")
    axes.set_xlabel("known images flagged wrongly")
    axes.set_ylabel("novel images caught")
    axes.set_aspect("equal")
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    plain(axes)
    return figure


def looks(batch: pd.DataFrame) -> Figure:
    """Novel images found against images looked at, the most novel first; between a random order and the best one."""
    figure = Figure(figsize=(4.8, 3.9), layout="constrained")
    axes = figure.subplots()
    novel = (batch["truth"] == "novel").to_numpy()
    axes.plot([0, novel.sum(), len(batch)], [0, 1, 1], color=NEUTRAL, linewidth=0.9, linestyle="--", label="best order")
    for column, (name, colour) in RANKED.items():
        values = batch[column].to_numpy()
        found = np.insert(metrics.found_after(values, novel), 0, 0.0)
        after = metrics.first_looks(values, novel)["found_50"]
        axes.plot(np.arange(len(found)), found, color=colour, label=f"{name}, {after:.0%} after 50 looks")
    axes.plot([0, len(batch)], [0, 1], color=FAINT, linewidth=0.7, linestyle=":", label="random order")
    axes.set_xlabel("images looked at, highest score first")
    axes.set_ylabel("novel images found")
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    plain(axes)
    return figure


def sheet(run: RunDir, batch: pd.DataFrame) -> Figure:
    """The highest-scoring images of the batch, most novel first, framed by what they are where that is known."""
    rows, columns = SHEET
    images = packed.read(run.batch).images
    top = np.argsort(-batch["score"].to_numpy(), kind="stable")[: rows * columns]
    # One pair of axes in inches and not one for each image: they would take longer to draw than all else in a run.
    width, height, side = columns * 0.95, rows * 1.15 + 0.4, 0.84
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    for number, row in enumerate(top.tolist()):
        image, entry = _showable(images[row]), batch.iloc[row]
        scale = side / max(image.shape[:2])
        high, wide = image.shape[0] * scale, image.shape[1] * scale
        middle, lowest = (number % columns + 0.5) * 0.95, 0.4 + (number // columns + 1) * 1.15 - 0.08
        left, above = middle - wide / 2, lowest - high
        axes.imshow(
            image, cmap="gray", vmin=0, vmax=255, interpolation="bicubic", extent=(left, left + wide, lowest, above)
        )
        colour = {"known": KNOWN, "novel": NOVEL}.get(entry.get("truth", ""), FAINT)
        axes.add_patch(Rectangle((left, above), wide, high, fill=False, color=colour, linewidth=2.2))
        axes.text(middle, above - 0.04, f"{entry['score']:.2f}", fontsize=7, ha="center", va="bottom")
    axes.set(xlim=(0, width), ylim=(height, 0), aspect="auto")
    frames = "   (frame: red = novel, blue = known)" if "truth" in batch else ""
    title = f"highest scores in batch {run.batch_name}{frames}"
    axes.text(width / 2, 0.2, title, fontsize=10, ha="center", va="center")
    return figure


def _showable(image: torch.Tensor) -> np.ndarray:
    return image.squeeze().numpy()


def plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def save(figure: Figure, path: Path) -> Path:
    with files.replacing(path) as draft:
        # No software version and date inside: the same run draws the same bytes.
        figure.savefig(draft, format="png", dpi=130, metadata={"Software": None})
    return path
