"""The training loop: it learns, stops, keeps what it is told to, and resumes to the same bytes."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from erd import nets
from erd.base.errors import RunError
from erd.data.packed import Rows
from erd.training.batches import Mixture
from erd.training.checkpoint import Recording
from erd.training.loop import Examples, Fit, Recipe, State, evaluate, fit, predict
from erd.training.optimizers import Optimizer

RECIPE = Recipe(
    epochs=4,
    batch_size=16,
    optimizer="adam",
    lr=3e-3,
    momentum=0.9,
    weight_decay=0.0,
    milestones=[3],
    gamma=0.5,
    augment=False,
    monitor="accuracy",
    patience=0,
)


def stripes(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two easy classes: bright upper or bright lower half, with noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    images = torch.randint(0, 120, (count, 8, 8), generator=generator)
    images[labels == 0, :4] += 60
    images[labels == 1, 4:] += 60
    return images.to(torch.uint8), labels


def examples(count: int, seed: int) -> Examples:
    images, labels = stripes(count, seed)
    return Examples(Mixture(Rows(images)), labels)


def train(recipe: Recipe, *, net: str = "mlp", seed: int = 0, checkpoint: Path | None = None, **more: object) -> Fit:
    model = nets.build(net, channels=1, image_size=8, classes=2, seed=seed, mean=[0.3], std=[0.2])
    generator = torch.Generator().manual_seed(seed)
    return fit(model, examples(96, 1), examples(64, 2), recipe, generator, checkpoint=checkpoint, **more)  # type: ignore[arg-type]


def same(first: list[State], second: list[State]) -> bool:
    return len(first) == len(second) and all(
        torch.equal(a[name], b[name]) for a, b in zip(first, second, strict=True) for name in a
    )


def test_it_learns_and_records_every_epoch() -> None:
    result = train(replace(RECIPE, epochs=8))
    assert [record["epoch"] for record in result.history] == list(range(1, 9))
    assert result.history[-1]["loss"] < result.history[0]["loss"]
    assert result.history[-1]["val_accuracy"] > 0.9
    assert set(result.history[0]) == {"epoch", "loss", "val_loss", "val_accuracy", "train_accuracy"}


def test_curves_are_recorded_for_each_part_of_the_training_set() -> None:
    whole = examples(96, 1)
    part = torch.repeat_interleave(torch.tensor([0, 1, 2], dtype=torch.int8), torch.tensor([48, 24, 24]))
    wrong = torch.where(part == 2, 1 - whole.labels, whole.labels)  # a part that contradicts the rest is learned last
    mixed = Examples(whole.images, wrong, part, ("train", "batch_known", "batch_novel"))
    model = nets.build("mlp", channels=1, image_size=8, classes=2, seed=0)
    result = fit(model, mixed, examples(64, 2), replace(RECIPE, epochs=8), torch.Generator().manual_seed(0))
    last = result.history[-1]
    assert last["train_accuracy"] > 0.8
    assert last["batch_known_accuracy"] > 0.8
    assert last["batch_novel_accuracy"] < 0.5


@pytest.mark.parametrize("keep", ["best", "last", "softmax-average", "weight-average", "ema"])
@pytest.mark.parametrize(("net", "optimizer"), [("mlp", "adam"), ("resnet20", "sgd")])
def test_a_fit_that_was_killed_ends_with_the_bytes_of_one_that_was_not(
    keep: str, net: str, optimizer: str, tmp_path: Path
) -> None:
    recipe = replace(RECIPE, keep=keep, optimizer=optimizer, lr=1e-2, augment=net == "resnet20", weight_decay=1e-3)
    undisturbed = train(recipe, net=net)

    class KilledError(Exception):
        pass

    def kill(record: dict[str, float]) -> None:
        if record["epoch"] == 2:
            raise KilledError

    path = tmp_path / "checkpoint.safetensors"
    with pytest.raises(KilledError):
        train(recipe, net=net, checkpoint=path, on_epoch=kill)
    again: list[float] = []
    resumed = train(recipe, net=net, checkpoint=path, on_epoch=lambda record: again.append(record["epoch"]))
    assert again == [3, 4], "the epochs before the kill are not trained again"
    assert same(resumed.snapshots, undisturbed.snapshots)
    assert resumed.history == undisturbed.history
    assert resumed.best_epoch == undisturbed.best_epoch


@pytest.mark.parametrize("keep", ["best", "last", "softmax-average", "weight-average"])
@pytest.mark.parametrize(("net", "optimizer"), [("mlp", "adam"), ("resnet20", "sgd")])
def test_a_fit_from_a_recording_has_the_bytes_of_one_that_was_trained(
    keep: str, net: str, optimizer: str, tmp_path: Path
) -> None:
    recipe = replace(RECIPE, optimizer=optimizer, lr=1e-2, augment=net == "resnet20", weight_decay=1e-3)
    train(replace(recipe, epochs=2), net=net, recording=Recording(tmp_path))  # what was asked for first
    for epochs in (4, 3):  # one that goes on where the recording ends, one that stops before
        recording = Recording(tmp_path)
        wanted = replace(recipe, keep=keep, epochs=epochs)
        played, trained = train(wanted, net=net, recording=recording), train(wanted, net=net)
        assert same(played.snapshots, trained.snapshots)
        assert (played.history, played.best_epoch) == (trained.history, trained.best_epoch)
    written = tmp_path / "epoch3.safetensors"
    before = written.stat().st_mtime_ns
    train(replace(recipe, epochs=4), net=net, recording=Recording(tmp_path))
    assert written.stat().st_mtime_ns == before, "nothing is trained twice"
    assert sum(file.name.startswith("optimizer") for file in tmp_path.iterdir()) == 1


@pytest.mark.parametrize("net", ["mlp", "resnet20"])
@pytest.mark.parametrize("kind", ["adam", "sgd"])
def test_steps_are_those_of_torchs_own_optimizers_to_the_bit(kind: str, net: str) -> None:
    ours, theirs = (nets.build(net, channels=1, image_size=8, classes=2, seed=0) for _ in range(2))
    optimizer = Optimizer(ours.parameters(), kind, lr=1e-2, momentum=0.9, weight_decay=1e-3)
    if kind == "adam":
        reference: torch.optim.Optimizer = torch.optim.Adam(theirs.parameters(), 1e-2, weight_decay=1e-3, fused=True)
    else:
        reference = torch.optim.SGD(theirs.parameters(), 1e-2, momentum=0.9, weight_decay=1e-3, fused=True)
    images, labels = stripes(32, 0)
    for step in range(3):
        for model, by in ((ours, optimizer), (theirs, reference)):
            by.zero_grad()
            torch.nn.functional.cross_entropy(model(images[:, None]), labels).backward()
            by.step()
        assert same([ours.state_dict()], [theirs.state_dict()]), step


@pytest.mark.parametrize("batch_size", [16, 7])
def test_the_small_nets_own_gradients_are_autograds_to_the_bit(batch_size: int) -> None:
    recipe = replace(RECIPE, keep="last", batch_size=batch_size, weight_decay=1e-3)
    by_hand, autograd = train(recipe), train(recipe, loss=lambda logits, labels, part: F.cross_entropy(logits, labels))
    assert same(by_hand.snapshots, autograd.snapshots)
    assert by_hand.history == autograd.history


def test_training_does_not_load_torchs_compiler() -> None:
    """Which takes seconds in every process that trains."""
    program = "import sys, test_loop as t; t.train(t.RECIPE); assert 'torch._dynamo' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parent, check=True)


def test_a_checkpoint_of_other_settings_is_not_taken_up(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    train(RECIPE, checkpoint=path, fingerprint="one", seed=1)
    assert same(train(RECIPE, checkpoint=path, fingerprint="two").snapshots, train(RECIPE).snapshots)


def test_training_does_not_depend_on_the_global_generator() -> None:
    torch.manual_seed(1)
    first = train(RECIPE, net="resnet20")
    state = torch.get_rng_state()
    torch.manual_seed(2)
    second = train(RECIPE, net="resnet20")
    assert same(first.snapshots, second.snapshots)
    assert not torch.equal(state, torch.get_rng_state())  # the seeds above did differ


def snapshots_of_every_epoch(recipe: Recipe) -> list[State]:
    return [train(replace(recipe, epochs=n, keep="last")).snapshots[0] for n in range(1, recipe.epochs + 1)]


def test_best_keeps_the_epoch_with_the_highest_validation_accuracy() -> None:
    recipe = replace(RECIPE, epochs=6, lr=0.1)  # a rate at which the accuracy jumps
    result = train(recipe)
    accuracies = [record["val_accuracy"] for record in result.history]
    assert len(set(accuracies)) > 1
    assert accuracies[result.best_epoch - 1] == max(accuracies)
    assert same(result.snapshots, [snapshots_of_every_epoch(recipe)[result.best_epoch - 1]])


def test_among_equal_validation_accuracies_the_lower_training_loss_wins() -> None:
    result = train(replace(RECIPE, epochs=10))
    top = max(record["val_accuracy"] for record in result.history)
    tied = [record for record in result.history if record["val_accuracy"] == top]
    assert len(tied) > 1, "the test needs a tie"
    assert result.best_epoch == min(tied, key=lambda record: record["loss"])["epoch"]


def test_monitor_loss_keeps_the_epoch_with_the_lowest_validation_loss() -> None:
    result = train(replace(RECIPE, epochs=6, lr=0.1, monitor="loss"))
    losses = [record["val_loss"] for record in result.history]
    assert losses[result.best_epoch - 1] == min(losses)


def test_last_keeps_the_last_epoch() -> None:
    assert same(train(replace(RECIPE, keep="last")).snapshots, snapshots_of_every_epoch(RECIPE)[-1:])


@pytest.mark.parametrize(("epochs", "averaged"), [(1, 1), (4, 2), (5, 3)])
def test_softmax_average_predicts_the_mean_over_the_later_half_of_the_epochs(epochs: int, averaged: int) -> None:
    recipe = replace(RECIPE, epochs=epochs)
    kept = train(replace(recipe, keep="softmax-average")).snapshots
    assert same(kept, snapshots_of_every_epoch(recipe)[-averaged:])
    model = nets.build("mlp", channels=1, image_size=8, classes=2, seed=0)
    images = examples(10, 3).images
    apart = torch.stack([predict(model, [snapshot], images) for snapshot in kept])
    torch.testing.assert_close(predict(model, kept, images), apart.mean(0))


def test_weight_average_is_the_mean_of_the_epochs_weights() -> None:
    averaged = train(replace(RECIPE, keep="weight-average")).snapshots
    assert len(averaged) == 1
    every = snapshots_of_every_epoch(RECIPE)
    for name, weight in averaged[0].items():
        torch.testing.assert_close(weight, torch.stack([snapshot[name] for snapshot in every]).mean(0))


def test_a_long_running_average_is_the_mean_of_all_steps_and_a_short_one_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short = train(replace(RECIPE, keep="ema", ema_steps=1)).snapshots
    assert same(short, train(replace(RECIPE, keep="last")).snapshots)
    every: list[dict[str, torch.Tensor]] = []
    step = Optimizer.step

    def noted(optimizer: Optimizer) -> None:
        step(optimizer)
        every.append({str(i): weight.detach().clone() for i, weight in enumerate(optimizer.weights)})

    monkeypatch.setattr(Optimizer, "step", noted)
    [long] = train(replace(RECIPE, keep="ema", ema_steps=10_000, epochs=2)).snapshots
    learned = [tensor for name, tensor in long.items() if name.startswith("net.")]
    assert len(every) > 10
    for i, mean in enumerate(learned):
        torch.testing.assert_close(mean, torch.stack([weights[str(i)] for weights in every]).mean(0))


@pytest.mark.parametrize("keep", ["weight-average", "ema"])
def test_averaged_weights_get_batch_norm_statistics_of_their_own(keep: str) -> None:
    recipe = replace(RECIPE, keep=keep, optimizer="sgd", lr=0.05, epochs=6)
    model = nets.build("resnet20", channels=1, image_size=8, classes=2, seed=0, mean=[0.3], std=[0.2])
    result = fit(model, examples(96, 1), examples(64, 2), recipe, torch.Generator().manual_seed(0))
    model.load_state_dict(result.snapshots[0])
    fitting = evaluate(model, examples(96, 1))[1]
    for layer in model.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.reset_running_stats()
    assert fitting > 0.9 > evaluate(model, examples(96, 1))[1]


def test_patience_ends_a_fit_that_no_longer_improves_and_zero_never_does() -> None:
    patient = train(replace(RECIPE, epochs=40, patience=2))
    epochs = len(patient.history)
    accuracies = [record["val_accuracy"] for record in patient.history]
    assert epochs < 40
    assert accuracies.index(max(accuracies)) == epochs - 3, "two epochs without a better one, then the end"
    assert len(train(replace(RECIPE, epochs=12, patience=0)).history) == 12


def test_training_that_diverges_is_one_sentence() -> None:
    with pytest.raises(RunError, match=r"diverged in epoch 1.*learning rate"):
        train(replace(RECIPE, optimizer="sgd", lr=1e30))


def test_the_learning_rate_falls_at_its_milestones(tmp_path: Path) -> None:
    slow = snapshots_of_every_epoch(replace(RECIPE, milestones=[1], gamma=1e-9))
    assert not same(slow[1:2], snapshots_of_every_epoch(RECIPE)[1:2])
    for name, weight in slow[0].items():
        torch.testing.assert_close(weight, slow[-1][name], atol=1e-6, rtol=0)
