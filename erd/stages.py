"""The stages as plain functions: settings and a run folder in, files out.

`erd run` chains them, `erd stage NAME` runs one. A stage whose inputs, settings and outputs are unchanged is not run
again: its record holds a key of what went in and the hashes of what came out, and both are checked, so a deleted or
altered file is made again.
"""

import functools
import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from erd import __version__, compute, evaluation, files, models, params, progress
from erd import disagreement as scores_of
from erd.data import ingest as packing
from erd.data.batches import Mixture, Rows
from erd.ensemble import CURVES, draw_labels, finetune_member, load_net, save_net
from erd.errors import RunError, UserError
from erd.models import Classifier
from erd.params import Settings
from erd.rundir import RunDir
from erd.seeds import derive
from erd.training import EVAL_BATCH, Examples, Fit, Loss, Recipe, State, fit, predict

log = logging.getLogger("erd")
HEAVIEST = 10.0  # an image of a rare class weighs at most as much as so many others: a few must not decide everything
SCORED_AT_ONCE = 64 * EVAL_BATCH  # images: bounds memory; whole batches, so that no bit depends on it
COMPARED = ("entropy", "max_softmax")  # columns of scores.parquet that are evaluated beside the score


@dataclass(frozen=True)
class Done:
    """What a stage left behind."""

    stage: str
    outputs: tuple[Path, ...]
    reused: bool = False


def ingest(settings: Settings, run: RunDir) -> Done:
    """Read the scenario's images, or the inbox, and pack them. Always run: its inputs are the user's own files."""
    from erd import alarm, notify

    # What cannot work stops before anything is written.
    _check_folder(settings, run)
    compute.device(settings.run)
    _weights(settings)
    alarm.level(settings.alarm.rate, settings.alarm.looks)
    notify.addresses(settings.alarm.notify)
    collected = packing.collect(settings)
    draw_labels(settings.finetune, collected.classes, settings.seed)
    return Done("ingest", tuple(packing.write(collected, run)))


def _check_folder(settings: Settings, run: RunDir) -> None:
    """A folder holds one batch: results of two would be mixed, and shown as those of one."""
    if not run.settings.exists():
        return
    there = params.read(run.settings).data
    wanted = settings.data
    places = [Path(data.inbox).resolve() if data.inbox else None for data in (there, wanted)]
    if there.scenario != wanted.scenario or places[0] != places[1]:
        what = f"{there.scenario}{f' with the inbox {there.inbox}' if there.inbox else ''}"
        raise UserError(
            f"{run.root} holds another batch, of {what}: give this one another name with --batch, or move the old one "
            "away with --replace"
        )


def pretrain(settings: Settings, run: RunDir) -> Done:
    """f̃: train on S, keep the best epoch on V."""
    weights = _weights(settings)
    outputs = [run.pretrained, run.history(run.pretrained)]
    chosen = {"seed": settings.seed, "net": settings.model.net, "recipe": settings.pretrain.model_dump(),
              "weights": files.sha256(weights) if weights else None}  # fmt: skip

    def work(key: str) -> None:
        labeled = packing.read(run.labeled)
        device = compute.device(settings.run)
        train = labeled.rows("train")
        mean, std = _channel_statistics(train)
        model = models.build(
            settings.model.net or "",
            channels=len(mean),
            image_size=labeled.images.shape[1],
            classes=len(labeled.facts["classes"]),
            seed=derive(settings.seed, "pretrain", "weights"),
            mean=mean,
            std=std,
        )
        if weights is not None:
            models.load_weights(model, weights)
        recipe = Recipe.of(settings.pretrain)
        with compute.threads(settings.pretrain.threads), progress.bar(recipe.epochs, "pretrain") as shown:

            def on_epoch(record: dict[str, float]) -> None:
                shown.set_postfix_str(f"val accuracy {record['val_accuracy']:.3f}", refresh=False)
                shown.update()

            result = fit(
                model.to(device),
                Examples(Mixture(train, device=device), labeled.labels_of("train")),
                Examples(Mixture(labeled.rows("val"), device=device), labeled.labels_of("val")),
                recipe,
                torch.Generator().manual_seed(derive(settings.seed, "pretrain")),
                checkpoint=run.checkpoint(run.pretrained),
                loss=_balanced(labeled.labels_of("train"), device) if settings.pretrain.balance else None,
                fingerprint=key,
                on_epoch=on_epoch,
            )
        save_net(run.pretrained, model, result, {"classes": labeled.facts["classes"]})
        files.save_json(run.history(run.pretrained), result.history)
        run.checkpoint(run.pretrained).unlink(missing_ok=True)

    return _once(run, "pretrain", chosen, [run.labeled], outputs, work, shared=True)


def finetune(settings: Settings, run: RunDir, label: int, member: int = 0) -> Done:
    """One member: S ∪ {(x, c): x ∈ U}, and C among U where the calibration is `mixed`. Its number picks its GPU."""
    path = run.member(label)
    outputs = [path, run.history(path)]
    recipe = Recipe.of(settings.finetune)
    mixed, crossfit = (settings.detect.calibration == mode for mode in ("mixed", "crossfit"))
    chosen = {"seed": settings.seed, "label": label, "mixed": mixed, "crossfit": crossfit,
              "recipe": settings.finetune.model_dump(exclude={"members", "labels"})}  # fmt: skip
    report = progress.reporter(run.progress(path), recipe.epochs)

    def work(key: str) -> None:
        labeled, batch = packing.read(run.labeled), packing.read(run.batch)
        curves = _curves(run)
        facts: dict[str, Any] = {"classes": labeled.facts["classes"], "label": label}
        folds = _folds(settings, len(batch.images))
        checkpoints = [run.checkpoint(path.with_stem(f"{label}-{number}")) for number in range(len(folds))]
        whole = Fit()
        for number, (fold, rows) in enumerate(folds):
            pretrained, _ = load_net(run.pretrained, compute.device(settings.run, member))
            here = torch.from_numpy(rows)
            unlabeled = [(Rows(batch.images, here if crossfit else None), curves[here])]
            if mixed:
                hidden = labeled.rows("calibration")
                known_truth = CURVES.index("batch_known" if truth_of(run.batch) is not None else "batch")
                unlabeled.append((hidden, torch.full((len(hidden),), known_truth, dtype=torch.int8)))
            model, result = finetune_member(
                pretrained,
                label,
                (labeled.rows("train"), labeled.labels_of("train")),
                unlabeled,
                (labeled.rows("val"), labeled.labels_of("val")),
                settings.finetune,
                derive(settings.seed, "fold", number) if number else settings.seed,
                checkpoint=checkpoints[number],
                fingerprint=f"{key} {number}",
                on_epoch=report,
            )
            whole.snapshots += result.snapshots
            if fold is not None:  # one file for both folds: for new images they are one member
                facts.setdefault("folds", []).extend([fold] * len(result.snapshots))
            if number == 0:
                whole.history, whole.best_epoch = result.history, result.best_epoch
        save_net(path, model, whole, facts)
        files.save_json(run.history(path), whole.history)
        for checkpoint in checkpoints:
            checkpoint.unlink(missing_ok=True)

    done = _once(run, f"finetune-{label}", chosen, [run.labeled, run.batch, run.pretrained], outputs, work)
    report({"epoch": recipe.epochs})
    for file in outputs:
        files.copy(file, run.finetuned(label) / file.name)
    return done


def finetune_all(settings: Settings, run: RunDir) -> list[Done]:
    """All members, side by side in the workers of the settings."""
    labels = member_labels(settings, run)
    with members_underway(settings, run, labels), compute.Workers(settings.run, len(labels)) as workers:

        def one(member: int, label: int) -> Done:
            return workers.call(finetune, settings, run, label, member)

        with ThreadPoolExecutor(len(labels)) as waiting:
            return list(waiting.map(one, range(len(labels)), labels))


@contextmanager
def members_underway(
    settings: Settings, run: RunDir, labels: Sequence[int], on_progress: Callable[[float], None] = lambda share: None
) -> Iterator[None]:
    """Around the fine-tuning of an ensemble: clears away members of another one, and draws the progress."""
    there = [*run.member(0).parent.glob("[0-9]*.safetensors"), *run.finetuned(0).parent.glob("[0-9]*")]
    for stale in {int(path.stem) for path in there} - set(labels):
        _drop_member(run, stale)
    epochs = Recipe.of(settings.finetune).epochs
    paths = [run.progress(run.member(label)) for label in labels]
    with progress.watching(paths, epochs, f"fine-tune ×{len(labels)}", on_progress):
        yield


def score(settings: Settings, run: RunDir) -> Done:
    """Algorithm 2: disagreement of the members on U (and T), and what it means against known images."""
    labels = member_labels(settings, run)
    _gather_members(run, labels)
    outputs = [run.scores, run.reference_scores, run.validation_scores, run.clean_scores, run.holdout_scores,
               run.decision]  # fmt: skip
    chosen = {"labels": labels, "seed": settings.seed, "score": settings.score.model_dump(),
              "detect": settings.detect.model_dump(),
              "alarm": settings.alarm.model_dump(exclude={"notify"})}  # fmt: skip
    inputs = [run.labeled, run.batch, run.holdout, run.pretrained, *(run.member(label) for label in labels)]
    # Which known images the batch is compared with, and which new images are.
    with_batch, with_new = {
        "mixed": ("calibration", "clean"),
        "crossfit": ("calibration", "calibration"),
        "holdout": ("calibration", "calibration"),
        "paper": ("val", "val"),
    }[settings.detect.calibration]

    def work(key: str) -> None:
        from erd import decisions, detection  # a second for scipy.stats, which workers that only train need not wait

        device = compute.device(settings.run)
        paths = [run.pretrained, *(run.member(label) for label in labels)]
        nets = [(*load_net(path, device), files.load_facts(path).get("folds", [])) for path in paths]

        @functools.cache  # in some modes the same known images serve twice
        def scored(packed: Path, part: str | None = None, fold: int | None = None) -> pd.DataFrame:
            return _scored(run, packed, part, _without_fold(nets, fold), settings)

        folds = _folds(settings, len(packing.read(run.batch).images))
        batches = [scored(run.batch, None, fold).iloc[rows] for fold, rows in folds]
        references = [scored(run.labeled, with_batch, fold) for fold, _ in folds]
        decision = decisions.decide(
            [
                decisions.Compared(rows, batch["score"].to_numpy(), reference["score"].to_numpy())
                for (_, rows), batch, reference in zip(folds, batches, references, strict=True)
            ],
            settings,
        )
        batch = pd.concat(batches).sort_index()
        batch.insert(2, "p_value", decision.p_value)
        batch.insert(3, "flagged", decision.flagged)
        batch["wrong_at_most"] = decision.wrong_at_most
        validation, clean, holdout = scored(run.labeled, "val"), scored(run.labeled, with_new), scored(run.holdout)
        known, values = clean["score"].to_numpy(), holdout["score"].to_numpy()
        holdout.insert(2, "p_value", detection.p_values(values, known))
        holdout.insert(3, "flagged", decisions.flags(values, known, settings))
        drift = decisions.drift(known, validation["score"].to_numpy()) if with_new != "val" else None
        files.save_table(run.scores, batch)
        files.save_table(run.reference_scores, pd.concat(references))
        files.save_table(run.clean_scores, clean)
        files.save_table(run.validation_scores, validation)
        files.save_table(run.holdout_scores, holdout)
        warnings = [*decision.warnings, *([drift] if drift else [])]
        files.save_json(run.decision, decision.facts | {"warnings": warnings})

    return _once(run, "score", chosen, inputs, outputs, work)


def evaluate(settings: Settings, run: RunDir) -> Done:
    """metrics.json and the figures."""
    from erd import decisions, figures, plots  # matplotlib: only here

    labels = member_labels(settings, run)
    batch, holdout = files.load_table(run.scores), files.load_table(run.holdout_scores)
    reference = files.load_table(run.reference_scores)["score"].to_numpy()
    decided = files.load_json(run.decision)
    warnings = decided.pop("warnings")
    pretrained = files.load_json(run.history(run.pretrained))
    members = {label: files.load_json(run.history(run.member(label))) for label in labels}
    metrics: dict[str, Any] = {"batch": run.batch_name, "scenario": settings.data.scenario}
    metrics |= _quality(batch) | {f"holdout_{name}": value for name, value in _quality(holdout).items()}
    metrics |= {
        "images": len(batch),
        **decided,
        "threshold": _finite(batch.loc[batch["flagged"], "score"].min()),
        "val_accuracy": pretrained[files.load_facts(run.pretrained)["best_epoch"] - 1]["val_accuracy"],
        "members": len(labels),
        "sizes": files.load_json(run.ingested)["sizes"],
    }
    metrics["warnings"] = [*files.load_json(run.ingested)["warnings"], *warnings]
    metrics["assumes"] = decisions.assumptions(settings)
    files.save_json(run.metrics, metrics)
    best = {label: files.load_facts(run.member(label))["best_epoch"] for label in labels}
    drawn = figures.draw_all(run, settings, batch, members, best)
    for stale in set(run.figures.glob("*.png")) - set(drawn):  # of a run that knew the truth
        stale.unlink()
    plots.write_all(run, batch, reference, members)
    return Done("evaluate", (run.metrics, *drawn))


def finetune_here(settings: Settings, run: RunDir, label: int, member: int = 0) -> Done:
    """One member in this process, with the threads a worker would have; nothing for a label that was not drawn."""
    if label not in (drawn := member_labels(settings, run)):
        log.info("no member has the label %s (their labels are %s): nothing to train", label, drawn)
        _drop_member(run, label)
        run.finetuned(label).mkdir(parents=True)
        return Done(f"finetune-{label}", ())
    with compute.threads(settings.run.threads):
        return finetune(settings, run, label, member)


def known_classes(run: RunDir) -> list[str]:
    if not run.ingested.exists():
        raise RunError(f"{run.ingested} is missing; run the stage ingest first")
    return files.load_json(run.ingested)["classes"]


def member_labels(settings: Settings, run: RunDir) -> list[int]:
    """The artificial labels of this run, as numbers among its known classes."""
    return draw_labels(settings.finetune, known_classes(run), settings.seed)


def _once(
    run: RunDir,
    stage: str,
    chosen: dict[str, Any],
    inputs: Sequence[Path],
    outputs: Sequence[Path],
    work: Callable[[str], None],
    shared: bool = False,
) -> Done:
    """Do the work unless its record says that the same was done already and the outputs are still the same.

    `shared`: or unless another run in the workspace did it. Week after week has the same classifier until its images
    change.
    """
    if absent := [path for path in inputs if not path.exists()]:
        raise RunError(f"{absent[0]} is missing; run the stage that writes it first")
    key = files.digest([__version__, stage, chosen, [files.sha256(path) for path in inputs]])
    record = run.record(stage)
    if before := files.load_json_if_whole(record):
        hashes = {path.relative_to(run.root).as_posix(): files.sha256(path) for path in outputs if path.exists()}
        if before.get("key") == key and before.get("outputs") == hashes:
            return Done(stage, tuple(outputs), reused=True)
    record.unlink(missing_ok=True)
    if shared and _taken_over(run, stage, key, outputs):
        return Done(stage, tuple(outputs), reused=True)
    started = datetime.now(UTC)
    work(key)
    hashes = {path.relative_to(run.root).as_posix(): files.sha256(path) for path in outputs}
    times = {"started": started.isoformat(), "finished": datetime.now(UTC).isoformat()}
    files.save_json(record, {"key": key, "outputs": hashes} | times)
    return Done(stage, tuple(outputs))


def _taken_over(run: RunDir, stage: str, key: str, outputs: Sequence[Path]) -> bool:
    """Whether another run of the workspace had the same inputs and settings; then its files are copied here."""
    names = [path.relative_to(run.root).as_posix() for path in outputs]
    for other in sorted(run.root.parent.glob("*")):
        if other == run.root or not (found := files.load_json_if_whole(RunDir(other).record(stage))):
            continue
        if found.get("key") != key:
            continue
        with suppress(OSError, RunError):  # it may be at work there, or gone
            for name in names:
                files.copy(other / name, run.root / name)
            if found["outputs"] == {name: files.sha256(run.root / name) for name in names}:
                files.save_json(run.record(stage), found)
                return True
    return False


# members/ is the ensemble, one file a member. A pipeline that has a stage for every label (dvc.yaml) cannot say which
# files that will be: for it each label has a folder of its own, finetune/<label>, that stays empty for no member.


def _drop_member(run: RunDir, label: int) -> None:
    run.member(label).unlink(missing_ok=True)
    run.history(run.member(label)).unlink(missing_ok=True)
    shutil.rmtree(run.finetuned(label), ignore_errors=True)


def _gather_members(run: RunDir, labels: Sequence[int]) -> None:
    """Bring back members of the ensemble that are only in the folders of their labels."""
    for label in labels:
        for net in (run.member(label), run.history(run.member(label))):
            if not net.exists() and (kept := run.finetuned(label) / net.name).exists():
                files.copy(kept, net)


def _weights(settings: Settings) -> Path | None:
    if settings.model.weights and not Path(settings.model.weights).is_file():
        raise UserError(f"there is no file of weights at {settings.model.weights}; correct model.weights")
    return Path(settings.model.weights) if settings.model.weights else None


def _balanced(labels: torch.Tensor, device: torch.device) -> Loss:
    """Cross-entropy in which a class counts the same however many images it has, up to HEAVIEST times its own."""
    counts = torch.bincount(labels).double()
    weight = (counts.mean() / counts).clamp_max(HEAVIEST).float().to(device)
    return lambda logits, target, part: torch.nn.functional.cross_entropy(logits, target, weight)


def _channel_statistics(rows: Rows) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of S per channel, of values 0..1; counted, so that no thread count changes a bit."""
    channels = rows.images.shape[3] if rows.images.ndim == 4 else 1
    counts = torch.zeros(channels, 256, dtype=torch.int64)
    mixture = Mixture(rows)
    for positions in torch.arange(len(rows)).split(8192):
        images = mixture.take(positions)
        for channel in range(channels):
            counts[channel] += torch.bincount(images[..., channel].flatten(), minlength=256)
    values = torch.arange(256, dtype=torch.float64) / 255
    share = counts.double() / counts.sum(1, keepdim=True)
    mean = share @ values
    std = ((share @ values**2) - mean**2).clamp_min(0).sqrt()
    return mean.tolist(), std.tolist()


def truth_of(packed: Path) -> np.ndarray | None:
    """ "known" or "novel" for each image of a packed set; None where nobody knows."""
    manifest = files.load_table(RunDir.manifest(packed))
    return manifest["truth"].to_numpy() if "truth" in manifest else None


def _folds(settings: Settings, images: int) -> list[tuple[int | None, np.ndarray]]:
    """Rows of the batch that are learned together, and scored by members that did not learn them: all in one, or two
    random halves with cross-fitting."""
    if settings.detect.calibration != "crossfit":
        return [(None, np.arange(images))]
    order = np.random.default_rng(derive(settings.seed, "folds")).permutation(images)
    return [(fold, np.sort(order[fold::2])) for fold in (0, 1)]


def _without_fold(
    nets: list[tuple[Classifier, list[State], list[int]]], fold: int | None
) -> list[tuple[Classifier, list[State]]]:
    """The nets as they are without what they learned from one fold of the batch."""
    return [
        (model, [state for state, learned in zip(states, folds, strict=True) if learned != fold] if folds else states)
        for model, states, folds in nets
    ]


def _curves(run: RunDir) -> torch.Tensor:
    """Which learning curve each image of the batch belongs to. It changes what is recorded, never what is learned."""
    truth = truth_of(run.batch)
    if truth is None:
        return torch.full((len(packing.read(run.batch).images),), CURVES.index("batch"), dtype=torch.int8)
    codes = np.where(truth == "novel", CURVES.index("batch_novel"), CURVES.index("batch_known"))
    return torch.from_numpy(codes.astype(np.int8))


def _scored(
    run: RunDir, packed: Path, part: str | None, nets: list[tuple[Classifier, list[State]]], settings: Settings
) -> pd.DataFrame:
    """One row an image of a packed set, or of a part of it. The first net is the classifier, the others are members."""
    columns = _score_columns(packed, part, nets, settings, known_classes(run))
    manifest = files.load_table(RunDir.manifest(packed))  # now that the images are no longer mapped
    if part:
        manifest = manifest[manifest["part"] == part].reset_index(drop=True)
    table = {"id": manifest["id"]} | columns
    return pd.DataFrame(table | ({"truth": manifest["truth"]} if "truth" in manifest else {}))


def _score_columns(
    packed: Path,
    part: str | None,
    nets: list[tuple[Classifier, list[State]]],
    settings: Settings,
    classes: list[str],
) -> dict[str, np.ndarray]:
    images = packing.read(packed)
    device = next(nets[0][0].parameters()).device
    blocks: list[dict[str, np.ndarray]] = []
    for rows in (images.rows(part) if part else images.rows()).split(SCORED_AT_ONCE):
        mixture = Mixture(rows, device=device)
        with compute.threads(settings.pretrain.threads):
            classifier, *others = (predict(model, snapshots, mixture) for model, snapshots in nets)
        members = torch.stack(others)
        blocks.append(
            {
                "score": scores_of.disagreement(members, settings.score.distance).numpy(),
                "predicted": np.array(classes)[classifier.argmax(1).numpy()],
                # For comparison: what the same ensemble and the classifier alone would say.
                "entropy": scores_of.entropy_of_mean(members).numpy(),
                "max_softmax": scores_of.max_softmax(classifier[None]).numpy(),
            }
        )
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def _quality(table: pd.DataFrame) -> dict[str, Any]:
    """Detection figures of a scored set with truth; nothing of it (None) without."""
    names = ("auroc", "tnr95", "aupr")
    if "truth" not in table or table.empty:
        return dict.fromkeys(
            (*names, "realised_fpr", "realised_fdr", "power", *(f"{c}_{n}" for c in COMPARED for n in names))
        )
    novel = (table["truth"] == "novel").to_numpy()
    flagged = table["flagged"].to_numpy()
    figures: dict[str, Any] = evaluation.detection_metrics(table["score"].to_numpy(), novel)
    figures["realised_fpr"] = float(flagged[~novel].mean()) if (~novel).any() else None
    figures["realised_fdr"] = float((~novel)[flagged].mean()) if flagged.any() else 0.0
    figures["power"] = float(flagged[novel].mean()) if novel.any() else None
    for compared in COMPARED:
        other = evaluation.detection_metrics(table[compared].to_numpy(), novel)
        figures |= {f"{compared}_{name}": value for name, value in other.items()}
    return figures


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
