"""The one training loop: early stopping on V, what is kept, a checkpoint after every epoch, resume.

A killed and resumed fit ends with the same bytes as an undisturbed one: everything random comes from one generator, and
the checkpoint holds its state with the weights, the optimizer and what is kept so far.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from erd.base.errors import RunError
from erd.nets import Classifier, uses_convolutions
from erd.settings.schema import Finetune, Training
from erd.training import checkpoint as saved
from erd.training import step as steps
from erd.training.batches import Mixture, in_order, shuffled
from erd.training.checkpoint import Recording, State
from erd.training.optimizers import Optimizer
from erd.training.step import Loss

EVAL_BATCH = 1024


@dataclass(frozen=True)
class Recipe:
    """How to train; every field decided (params.yaml may leave them to the scenario)."""

    epochs: int
    batch_size: int
    optimizer: str
    lr: float
    momentum: float
    weight_decay: float
    milestones: list[int]
    gamma: float
    augment: bool
    monitor: str
    patience: int
    precision: str = "auto"
    graphs: bool = False
    keep: str = "best"
    ema_steps: int = 300

    def lr_at(self, epochs_done: int) -> float:
        return self.lr * self.gamma ** sum(epochs_done >= milestone for milestone in self.milestones)

    @classmethod
    def of(cls, block: Training) -> "Recipe":
        values = {name: getattr(block, name) for name in Training.model_fields}
        if isinstance(block, Finetune):
            values |= {"keep": block.keep, "ema_steps": block.ema_steps}
        undecided = [name for name, value in values.items() if value is None]
        assert not undecided, f"resolve the settings first: {undecided}"
        return cls(**values)


@dataclass(frozen=True)
class Examples:
    """What a net is trained on. `part` says for each image which learning curve it belongs to, e.g. train, novel."""

    images: Mixture
    labels: Tensor
    part: Tensor | None = None
    part_names: tuple[str, ...] = ("train",)

    def __len__(self) -> int:
        return len(self.labels)

    def parts(self) -> Tensor:
        return torch.zeros(len(self), dtype=torch.int8) if self.part is None else self.part


@dataclass
class Fit:
    """The result: one snapshot of weights, or several whose softmax is averaged; and a record per epoch."""

    snapshots: list[State] = field(default_factory=list)
    history: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int = 0


def fit(
    model: Classifier,
    train: Examples,
    val: Examples,
    recipe: Recipe,
    generator: torch.Generator,
    *,
    loss: Loss | None = None,
    watch: Callable[[Classifier], tuple[float, float]] | None = None,
    checkpoint: Path | None = None,
    fingerprint: str = "",
    recording: Recording | None = None,
    on_epoch: Callable[[dict[str, float]], None] = lambda record: None,
) -> Fit:
    """Train `model` in place on `train`, watching `val`; return what `recipe.keep` says.

    The loss is the cross-entropy unless another is given. `watch` gives loss and accuracy of an epoch where those on
    `val` are not what decides.

    With a `checkpoint` path the state is saved there after every epoch, and a file left by a killed fit with the same
    `fingerprint` is taken up. The caller deletes it once the result is safe. Epochs of the `recording` are played
    back, the others added to it.
    """
    device = next(model.parameters()).device
    if uses_convolutions(model):
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    labels, part = train.labels.to(device), train.parts().to(device)
    optimizer = Optimizer(
        model.parameters(), recipe.optimizer, lr=recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay
    )
    step = steps.of(model, optimizer, loss, recipe.precision, graphs=recipe.graphs)
    result, done = Fit(), 0  # steps
    if checkpoint is not None and checkpoint.exists():
        found = saved.resume(checkpoint, fingerprint, model, optimizer, generator)
        if found is not None:
            result.snapshots, facts = found
            result.history, result.best_epoch, done = facts["history"], facts["best_epoch"], int(facts["steps"])
    assert recording is None or recipe.keep != "ema", "a recording has no running average: it changes with every step"
    ema: list[Tensor] = []  # the running average, updated in place, beside the weights it follows
    followed: list[Tensor] = []
    if recipe.keep == "ema":
        result.snapshots = result.snapshots or [_copy(model)]
        weights = {name: tensor for name, tensor in model.state_dict().items() if tensor.is_floating_point()}
        followed, ema = list(weights.values()), [result.snapshots[0][name] for name in weights]

    def train_epoch() -> dict[str, float]:
        nonlocal done
        optimizer.lr = recipe.lr_at(len(result.history))
        model.train()
        losses, orders, answers = [], [], []  # looked at after the epoch: a step of a small net is mostly overhead
        for positions, images in shuffled(train.images, recipe.batch_size, generator, augment=recipe.augment):
            value, logits = step(images, labels[positions], None if loss is None else part[positions])
            done += 1
            losses.append(value)
            orders.append(positions)
            with torch.no_grad():
                answers.append(logits.argmax(1))
                if ema:
                    # A plain mean until `ema_steps` steps are done, so that the starting weights do not linger.
                    torch._foreach_lerp_(ema, followed, max(1 / recipe.ema_steps, 1 / done))
        sizes = torch.tensor([len(positions) for positions in orders], dtype=torch.float32, device=device)
        loss_sum = (torch.stack(losses) @ sizes).item()
        hit, order = torch.zeros(len(train), dtype=torch.bool, device=device), torch.cat(orders)
        hit[order] = torch.cat(answers) == labels[order]
        watched = evaluate(model, val) if watch is None else watch(model)
        return record_of(result, loss_sum, hit, part, train.part_names, *watched)

    while goes_on(result, recipe):
        record = recording.play(len(result.history) + 1, model, optimizer, generator) if recording else None
        if record is None:
            record = train_epoch()
            if recording is not None:
                recording.write(record, model, optimizer, generator)
        result.history.append(record)
        keep(result, model, recipe)
        if checkpoint is not None:
            facts = {"fingerprint": fingerprint, "history": result.history, "best_epoch": result.best_epoch,
                     "steps": done}  # fmt: skip
            saved.save(checkpoint, model, optimizer, generator, result.snapshots, facts)
        on_epoch(record)

    if recipe.keep in ("weight-average", "ema"):
        for snapshot in result.snapshots:
            _refresh_batch_norm(model, snapshot, train, recipe, generator)
    return result


@torch.inference_mode()
def evaluate(model: Classifier, examples: Examples) -> tuple[float, float]:
    """Mean cross-entropy and accuracy."""
    model.eval()
    labels = examples.labels.to(next(model.parameters()).device)
    logits = torch.cat([model(images) for images in in_order(examples.images, EVAL_BATCH)])
    return F.cross_entropy(logits, labels).item(), (logits.argmax(1) == labels).sum().item() / len(labels)


@torch.inference_mode()
def predict(model: Classifier, snapshots: list[State], images: Mixture) -> Tensor:
    """Softmax of a member, averaged over its snapshots: N×classes, float32, on the CPU."""
    model.eval()
    total = None
    for snapshot in snapshots:
        model.load_state_dict(snapshot)
        batches = in_order(images, EVAL_BATCH)
        softmax = torch.cat([model(batch).softmax(1) for batch in batches]).cpu()
        total = softmax if total is None else total + softmax
    assert total is not None, "a member has at least one snapshot"
    return total / len(snapshots)


def _quality(record: dict[str, float], monitor: str) -> tuple[float, float]:
    """Larger is better. The paper asks for a high V accuracy and a low training error: the second decides ties."""
    return (record["val_accuracy"] if monitor == "accuracy" else -record["val_loss"]), -record["loss"]


def goes_on(result: Fit, recipe: Recipe) -> bool:
    """Whether there is an epoch left, and patience for it."""
    if not recipe.patience or not result.history:
        return len(result.history) < recipe.epochs
    watched = [_quality(record, recipe.monitor)[0] for record in result.history]
    return len(watched) < recipe.epochs and len(watched) - 1 - watched.index(max(watched)) < recipe.patience


def record_of(
    before: Fit,
    loss_sum: float,
    hit: Tensor,
    part: Tensor,
    part_names: tuple[str, ...],
    val_loss: float,
    val_accuracy: float,
) -> dict[str, float]:
    """What is said of the epoch after those before; of each training image, whether its label was hit."""
    epoch = len(before.history) + 1
    if not math.isfinite(loss_sum):
        remedy = "lower its learning rate (pretrain.lr or finetune.lr)"
        raise RunError(f"training diverged in epoch {epoch}: the loss is no number; {remedy}")
    record = {"epoch": epoch, "loss": loss_sum / len(hit), "val_loss": val_loss, "val_accuracy": val_accuracy}
    for code, name in enumerate(part_names):
        here = part == code
        if here.any():
            record[f"{name}_accuracy"] = (hit & here).sum().item() / here.sum().item()
    return record


def keep(result: Fit, model: nn.Module, recipe: Recipe) -> None:
    """What the recipe says, now that another epoch is done."""
    qualities = [_quality(record, recipe.monitor) for record in result.history]
    epoch = len(qualities)
    best = qualities.index(max(qualities)) + 1 == epoch
    if best:
        result.best_epoch = epoch
    if recipe.keep == "last" or (recipe.keep == "best" and best):
        result.snapshots = [_copy(model)]
    elif recipe.keep == "softmax-average":
        # The later half of the epochs: the first ones know the batch too little.
        result.snapshots = [*result.snapshots, _copy(model)][-math.ceil(epoch / 2) :]
    elif recipe.keep == "weight-average":
        if not result.snapshots:
            result.snapshots = [_copy(model)]
        for name, mean in result.snapshots[0].items():
            if mean.is_floating_point():
                mean.lerp_(model.state_dict()[name], 1 / epoch)


@torch.no_grad()
def _refresh_batch_norm(
    model: nn.Module, snapshot: State, train: Examples, recipe: Recipe, generator: torch.Generator
) -> None:
    """Averaged weights need statistics of their own: one pass over the training images recomputes them."""
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    model.load_state_dict(snapshot)
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain mean over all batches
    model.train()
    for _, images in shuffled(train.images, recipe.batch_size, generator, augment=recipe.augment):
        model(images)
    snapshot.update(_copy(model))


def _copy(model: nn.Module) -> State:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
