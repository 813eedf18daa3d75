"""Algorithm 1: K members, each fine-tuned on S ∪ {(x, c): x ∈ U} with a label c of its own, early-stopped on V.

Members are independent: no member sees another, each owns its generator, so they can be trained anywhere in any order.
"""

import copy
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from erd import nets
from erd.base import files
from erd.base.errors import UserError, nearest
from erd.base.seeds import derive
from erd.data.packed import Rows
from erd.nets import Classifier
from erd.settings.schema import Finetune
from erd.training.batches import Mixture
from erd.training.checkpoint import Recording
from erd.training.loop import Examples, Fit, Recipe, State, fit
from erd.training.together import Task, fit_together

CURVES = ("train", "batch_known", "batch_novel", "batch")  # learning curves; the last where the truth is not known

Unlabeled = Sequence[tuple[Rows, torch.Tensor]]  # sets of images, and the curve of each image


def draw_labels(finetune: Finetune, classes: Sequence[str], seed: int) -> list[int]:
    """The K artificial labels: the ones asked for, by name or number, else drawn with the seed."""
    if len(classes) == 1:
        return [0]  # a member that agrees with the classifier on all: candidates and neighbours decide alone
    count = min(3, len(classes)) if finetune.members is None else finetune.members
    if count < 2:
        raise UserError(f"finetune.members is {count}; members can only disagree if there are two or more")
    if count > len(classes):
        raise UserError(
            f"finetune.members is {count} but there are only {len(classes)} known classes, and each member needs a "
            f"label of its own: set finetune.members={len(classes)} or less"
        )
    if finetune.labels is None:
        return random.Random(derive(seed, "labels")).sample(range(len(classes)), count)
    labels = [find_label(name, classes) for name in finetune.labels]
    if len(set(labels)) < len(labels):
        raise UserError("finetune.labels names a class twice; each member needs a label of its own")
    if count > len(labels):
        raise UserError(f"finetune.members is {count} but finetune.labels names only {len(labels)}")
    return labels[:count]


def find_label(name: str | int, classes: Sequence[str]) -> int:
    """A class by its name, else by its number among the known classes."""
    if str(name) in classes:
        return classes.index(str(name))
    if str(name).isdecimal() and int(name) < len(classes):
        return int(name)
    raise UserError(f"'{name}' is not a known class: {nearest(str(name), classes)}")


def finetune_member(
    pretrained: Classifier,
    label: int,
    train: tuple[Rows, torch.Tensor],
    unlabeled: Unlabeled,
    val: tuple[Rows, torch.Tensor],
    finetune: Finetune,
    seed: int,
    *,
    checkpoint: Path | None = None,
    fingerprint: str = "",
    recording: Recording | None = None,
    on_epoch: Callable[[dict[str, float]], None] = lambda record: None,
) -> tuple[Classifier, Fit]:
    """One member f_c. `unlabeled` are the images that get the label c, each set with its curves (indices of CURVES).

    The fit is symmetric in the unlabelled images: which set one comes from changes nothing but the curves.
    """
    device = next(pretrained.parameters()).device
    task = _task(pretrained, label, train, unlabeled, finetune, seed, device)
    validation = Examples(Mixture(val[0], device=device), val[1])
    result = fit(task.model, task.train, validation, Recipe.of(finetune), task.generator,
                 checkpoint=checkpoint, fingerprint=fingerprint, recording=recording, on_epoch=on_epoch)  # fmt: skip
    return task.model, result


def finetune_together(
    pretrained: Classifier,
    members: Sequence[tuple[int, Unlabeled, int]],
    train: tuple[Rows, torch.Tensor],
    val: tuple[Rows, torch.Tensor],
    finetune: Finetune,
    on_epoch: Callable[[int], None] = lambda done: None,
) -> list[Fit]:
    """The same of several members that are heads on features, each with a label, unlabelled images and a seed of its
    own."""
    tasks = [
        _task(copy.deepcopy(pretrained), label, train, unlabeled, finetune, seed, "cpu")
        for label, unlabeled, seed in members
    ]
    return fit_together(tasks, Examples(Mixture(val[0]), val[1]), Recipe.of(finetune), on_epoch)


def _task(
    pretrained: Classifier,
    label: int,
    train: tuple[Rows, torch.Tensor],
    unlabeled: Unlabeled,
    finetune: Finetune,
    seed: int,
    place: torch.device | str,
) -> Task:
    """Where a member begins, and what it learns from; `place` is where its images are held."""
    model = pretrained
    if finetune.init == "random":  # ERD++
        model = nets.build(**pretrained.made_of, seed=derive(seed, "member", label))  # type: ignore[arg-type]
        model.to(next(pretrained.parameters()).device)
        for name in ("mean", "std", "scale", "shift"):
            getattr(model, name).copy_(getattr(pretrained, name))
    rows, labels = train
    artificial = torch.full((sum(len(u) for u, _ in unlabeled),), label)
    examples = Examples(
        Mixture(rows, *(u for u, _ in unlabeled), device=place),
        torch.cat([labels, artificial]),
        torch.cat([torch.zeros(len(rows), dtype=torch.int8), *(curve for _, curve in unlabeled)]),
        CURVES,
    )
    return Task(model, examples, torch.Generator().manual_seed(derive(seed, "finetune", label)))


def save_net(path: Path, model: Classifier, result: Fit, facts: dict[str, Any]) -> None:
    """A net in one file: what it is made of, and one or several snapshots of its weights."""
    tensors = {
        f"{i}/{name}": tensor for i, snapshot in enumerate(result.snapshots) for name, tensor in snapshot.items()
    }
    files.save_tensors(path, tensors, {"net": model.made_of, "best_epoch": result.best_epoch} | facts)


def load_net(path: Path, device: torch.device | str = "cpu") -> tuple[Classifier, list[State]]:
    """The net with its first snapshot loaded, and all snapshots (their softmax is averaged)."""
    tensors, facts = files.load_tensors(path)
    with files.understood(path):
        model = nets.build(**facts["net"], seed=0).to(device)
        if nets.uses_convolutions(model):  # as in training: another layout gives other last bits
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        count = 1 + max(int(name.partition("/")[0]) for name in tensors)
        snapshots: list[State] = [{} for _ in range(min(count, len(tensors)))]
        for name, tensor in tensors.items():
            number, _, leaf = name.partition("/")
            snapshots[int(number)][leaf] = tensor
        for snapshot in reversed(snapshots):
            model.load_state_dict(snapshot)
        return model, snapshots


def classes_of(path: Path) -> list[str]:
    """Names of the classes that a net in a file tells apart."""
    return list(map(str, files.load_facts(path, {"classes": list})["classes"]))


def made_of(path: Path) -> dict[str, Any]:
    """What a net in a file was built as."""
    return dict(files.load_facts(path, {"net": dict})["net"])


def folds_learned(path: Path) -> list[int]:
    """Of a cross-fitted member: which fold of the batch each of its snapshots was learned without."""
    with files.understood(path):
        tensors, facts = files.load_tensors(path)
        folds = [int(fold) for fold in facts.get("folds", [])]
        if folds and len(folds) != len({name.partition("/")[0] for name in tensors}):
            raise ValueError(f"it is of {len(folds)} folds, and has other weights")
    return folds


def best_epoch(path: Path) -> int:
    return int(files.load_facts(path, {"best_epoch": int})["best_epoch"])
