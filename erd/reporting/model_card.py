"""What a registered model is, in words for whoever wants to use it: what it was trained on, its figures, what it
promises and where that ends.

    text = write(settings, run)          # Markdown, the description of the model's version
"""

from erd.data import packed
from erd.reporting import wording
from erd.runs.folder import RunDir
from erd.runs.results import ClassAccuracy, Encoded, Ingested, Metrics
from erd.settings.schema import Settings

NAMED = 20  # classes that are named, and have a row in the table


def write(settings: Settings, run: RunDir) -> str:
    metrics = Metrics.read(run)
    parts = {
        "What it is": _about(metrics),
        "Trained on": _trained_on(settings, run, metrics),
        "Figures": _figures(run, metrics),
        "What it promises": _promises(settings, metrics),
        "Limits": _limits(run, metrics),
        "What it takes": _takes(run),
    }
    return "\n\n".join(f"### {title}\n{text}" for title, text in parts.items())


def _about(metrics: Metrics) -> str:
    return (
        f"A classifier and {metrics.members} copies of it, fine-tuned on batch {metrics.batch}. Where the copies "
        "disagree, an image shows something that nobody has labelled. For each image it gives a score (larger is more "
        "novel), a p-value, whether it is flagged, and the known class that it looks like."
    )


def _trained_on(settings: Settings, run: RunDir, metrics: Metrics) -> str:
    classes, seen = Ingested.read(run).classes, Encoded.read(run)
    more = f" and {len(classes) - NAMED:,} more" if len(classes) > NAMED else ""
    labelled = f"{metrics.sizes.get('train', 0):,} labelled images of {len(classes):,} classes"
    net = f"The net is {settings.model.net}"
    if seen.encoder:
        net += f", on the features of {seen.encoder} at {seen.input_size} pixels"
    return (
        f"{labelled} ({', '.join(classes[:NAMED])}{more}), and the {metrics.images:,} images of the batch without "
        f"labels. All are kept at {_size(run)}. {net}."
    )


def _figures(run: RunDir, metrics: Metrics) -> str:
    found, learned = metrics.on_batch, ClassAccuracy.read(run)
    rows = {
        f"right on known classes ({metrics.sizes.get('val', 0):,} images that it was not trained on)": (
            f"{metrics.val_accuracy:.1%}"
        )
    }
    if found.auroc is not None and found.tnr95 is not None:
        rows |= {"AUROC, novel against known, on its batch": f"{found.auroc:.3f}"}
        rows |= {"TNR@95 on its batch": f"{found.tnr95:.3f}"}
    if found.p50 is not None and metrics.images >= 50:
        rows |= {"novel among the 50 highest scores": f"{found.p50:.0%}"}
    if learned is not None:
        rows |= {
            f"right on “{each.name}” ({each.images:,} images)": f"{each.now:.1%}"
            for each in learned.classes[:NAMED]
            if each.now is not None
        }
    lines = [f"| {name.replace('|', '/')} | {value} |" for name, value in rows.items()]
    return "\n".join(["| | |", "|---|---|", *lines])


def _promises(settings: Settings, metrics: Metrics) -> str:
    text = (
        f"Of new images of known classes about {settings.detect.fpr:.0%} are flagged wrongly, on average; a p-value is "
        "the share of known images that look at least as novel."
    )
    return f"{text} In its batch itself: {wording.alarm(metrics)}"


def _limits(run: RunDir, metrics: Metrics) -> str:
    limits = [*metrics.assumes, wording.noticed(run)]
    limits.append(
        "The copies were made for one batch. Something new that looks otherwise than what was in it may be missed: "
        "run the next batch through the weekly flow, which makes new ones."
    )
    return "\n".join(f"- {limit}" for limit in limits if limit)


def _takes(run: RunDir) -> str:
    return (
        "A list of images: contents of files (PNG, JPEG, TIFF, DICOM …; in base64 over HTTP), or arrays of pixels 0 to "
        f"255, of any size. They are brought to {_size(run)} as the labelled ones were."
    )


def _size(run: RunDir) -> str:
    height, width, *channels = packed.read(run.batch).images.shape[1:]
    return f"{width}×{height} pixels, {'in colour' if channels == [3] else 'grey'}"
