"""The pictures of a run: learning curves, score histogram, ROC, what is found after how many looks, the most novel
images. Each is one function."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from erd.base import files
from erd.data import packed
from erd.runs.folder import RunDir
from erd.runs.results import Week
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
    reference = files.load_table(run.reference_scores)["score"].to_numpy()
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
        _plain(panel)
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
    _plain(axes)
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
    _plain(axes)
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
    _plain(axes)
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
            image, cmap="gray", vmin=0, vmax=255, interpolation="nearest", extent=(left, left + wide, lowest, above)
        )
        colour = {"known": KNOWN, "novel": NOVEL}.get(entry.get("truth", ""), FAINT)
        axes.add_patch(Rectangle((left, above), wide, high, fill=False, color=colour, linewidth=2.2))
        axes.text(middle, above - 0.04, f"{entry['score']:.2f}", fontsize=7, ha="center", va="bottom")
    axes.set(xlim=(0, width), ylim=(height, 0), aspect="auto")
    frames = "   (frame: red = novel, blue = known)" if "truth" in batch else ""
    title = f"highest scores in batch {run.batch_name}{frames}"
    axes.text(width / 2, 0.2, title, fontsize=10, ha="center", va="center")
    return figure


def story(weeks: Sequence[Week], level: float) -> Figure:
    """A simulated stream, week by week: what came in, whether the alarm rang, what was flagged, what is known."""
    figure = Figure(figsize=(7.2, 7.4), layout="constrained")
    mixture, alarms, flags, known = figure.subplots(4, 1, sharex=True)
    table = pd.DataFrame([asdict(week) for week in weeks])
    week = np.arange(1, len(table) + 1)

    learned = table["new_class_share"] - table["true_share"]
    mixture.bar(week, 100 * table["true_share"], color=NOVEL, label="new class, not yet known")
    mixture.bar(week, 100 * learned, bottom=100 * table["true_share"], color=KNOWN, label="new class, known by now")
    mixture.set_ylabel("% of the images")

    _alarms(alarms, week, table, level)

    right = (table["flagged"] * table["precision"].astype(float).fillna(0)).round()
    flags.bar(week, right, color=NOVEL, label="flagged, novel")
    flags.bar(week, table["flagged"] - right, bottom=right, color=KNOWN, label="flagged, known")
    flags.plot(week, (table["true_share"] * table["images"]).round(), "_", color=NEUTRAL, markersize=14, label="novel")
    for number, row in zip(week, table.to_dict("records"), strict=True):
        if row["flagged"] and row["recall"] is not None and row["precision"] is not None:
            text = f"{row['precision']:.0%} right\n{row['recall']:.0%} found"
            flags.annotate(text, (number, row["flagged"]), (0, 2), textcoords="offset points", ha="center", fontsize=7)
    flags.margins(y=0.25)
    flags.set_ylabel("images")

    known.plot(week, 100 * table["accuracy"], "o-", color=NEUTRAL, label="all images of the week")
    known.plot(week, 100 * table["new_class_accuracy"].astype(float), "o-", color=KNOWN, label="the new class")
    known.set(ylabel="classifier right, %", xlabel="week", ylim=(0, 104), xticks=week)
    _legends(mixture, alarms, flags, known)
    return figure


def history(weeks: Sequence[Mapping[str, object]]) -> Figure:
    """The batches of a stream, one after another: alarm, flags, what experts said of them, the classifier."""
    figure = Figure(figsize=(7.2, 7.4), layout="constrained")
    alarms, flags, rates, known = figure.subplots(4, 1, sharex=True)
    reviewed = ("flags_reviewed", "flag_precision", "audit_recall", "audit_false_positives", "accuracy_before")
    table = pd.DataFrame(weeks).reindex(columns=[*weeks[0], *(name for name in reviewed if name not in weeks[0])])
    figures = {name: table[name].astype(float) for name in ("images", "flagged", "accuracy", *reviewed)}
    week = np.arange(1, len(table) + 1)

    _alarms(alarms, week, table, float(table["alarm_level"].iloc[-1]))

    looked_at = figures["flags_reviewed"].fillna(0)
    right = (looked_at * figures["flag_precision"].fillna(0)).round()
    flags.bar(week, right, color=NOVEL, label="flagged, novel")
    flags.bar(week, looked_at - right, bottom=right, color=KNOWN, label="flagged, known")
    flags.bar(week, figures["flagged"] - looked_at, bottom=looked_at, color="#d5d5d5", label="flagged, not looked at")
    flags.set_ylabel("images")

    rates.plot(week, 100 * figures["flag_precision"], "o-", color=NOVEL, label="of the flags, novel")
    rates.plot(week, 100 * figures["audit_recall"], "s--", color=NEUTRAL, label="audit: novel, flagged")
    rates.plot(week, 100 * figures["audit_false_positives"], "^:", color=KNOWN, label="audit: known, flagged")
    rates.set(ylabel="%, by experts", ylim=(-4, 104))

    known.plot(week, 100 * figures["accuracy_before"], "o--", color=FAINT, label="the classifier before")
    known.plot(week, 100 * figures["accuracy"], "o-", color=KNOWN, label="the week's classifier")
    known.set(ylabel="classifier right, %")
    turned = {"rotation": 45, "ha": "right"} if len(table) > 5 else {}
    known.set_xticks(week, table["batch"], **turned)
    _legends(alarms, flags, rates, known)
    return figure


def _alarms(axes: Axes, week: np.ndarray, table: pd.DataFrame, level: float) -> None:
    """The alarm's p-values, and which of them rang."""
    rang, p = table["alarm"].to_numpy(bool), table["alarm_p"].to_numpy(float)
    axes.axhline(level, color=FAINT, linestyle=":", label="rings below")
    axes.plot(week, p, color=NEUTRAL, linewidth=1)
    axes.plot(week[~rang], p[~rang], "o", color=NEUTRAL, label="no alarm")
    axes.plot(week[rang], p[rang], "o", color=NOVEL, label="alarm")
    together = table.get("weeks_p", pd.Series(dtype=float)).astype(float).to_numpy()
    if np.isfinite(together).any():
        over = together <= table["alarm_level"].to_numpy(float)
        for chosen, colour, text in ((~over, NEUTRAL, "weeks together"), (over, NOVEL, "… alarm")):
            axes.plot(week[chosen], together[chosen], "s", color=colour, fillstyle="none", label=text)
    axes.set_yscale("log")
    axes.set_ylabel("alarm, p-value")


def _legends(*panels: Axes) -> None:
    for panel in panels:
        panel.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
        _plain(panel)


def _showable(image: torch.Tensor) -> np.ndarray:
    return image.squeeze().numpy()


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def save(figure: Figure, path: Path) -> Path:
    with files.replacing(path) as draft:
        # No software version and date inside: the same run draws the same bytes.
        figure.savefig(draft, format="png", dpi=130, metadata={"Software": None})
    return path
