"""Heads trained at once: what they are one after another up to rounding, and to the bit whatever is beside them."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from erd import nets
from erd.base.errors import RunError
from erd.data.packed import Rows
from erd.nets import FEATURES
from erd.nets.heads import Stack, width_of
from erd.training import together
from erd.training.batches import Mixture
from erd.training.loop import Examples, Fit, Recipe, fit, predict
from erd.training.together import Task, fit_together

WIDTH, CLASSES = 37, 3  # neither is a multiple of what is aligned in memory
RECIPE = Recipe(
    epochs=4,
    batch_size=16,
    optimizer="adam",
    lr=3e-3,
    momentum=0.9,
    weight_decay=1e-3,
    milestones=[3],
    gamma=0.5,
    augment=False,
    monitor="accuracy",
    patience=0,
    keep="softmax-average",
)
DRAWN = torch.Generator().manual_seed(0)
IMAGES, OTHERS = (torch.randn(count, 1, 1, WIDTH, generator=DRAWN).half() for count in (400, 90))  # two files
LABELS = (IMAGES[:, 0, 0, :CLASSES].float() + 0.8 * torch.randn(400, CLASSES, generator=DRAWN)).argmax(1)
# How many images each learns from: minibatches of which the last is full, short, a single image; fewer of them.
COUNTS = (112, 115, 113, 90, 112)


def tasks() -> list[Task]:
    return [task(number) for number in range(len(COUNTS))]


def task(number: int) -> Task:
    """S is the same for all, the artificial label and the images that have it are not."""
    model = nets.build("head", channels=WIDTH, image_size=FEATURES, classes=CLASSES, seed=number,
                       mean=[0.1] * WIDTH, std=[1.5] * WIDTH)  # fmt: skip
    chosen = torch.randperm(90, generator=torch.Generator().manual_seed(number))[: COUNTS[number] - 80]
    labels = torch.cat([LABELS[:80], torch.full((len(chosen),), number % CLASSES)])
    part = torch.cat([torch.zeros(80), torch.full((len(chosen),), 2)]).to(torch.int8)
    mixture = Mixture(Rows(IMAGES, torch.arange(80)), Rows(OTHERS, chosen))
    return Task(model, Examples(mixture, labels, part, ("train", "known", "novel")),
                torch.Generator().manual_seed(number))  # fmt: skip


VAL = Examples(Mixture(Rows(IMAGES, torch.arange(300, 400))), LABELS[300:])


def in_turn(recipe: Recipe) -> list[Fit]:
    return [fit(task.model, task.train, VAL, recipe, task.generator) for task in tasks()]


def weights_of(fits: list[Fit]) -> list[Tensor]:
    return [tensor for one in fits for snapshot in one.snapshots for tensor in snapshot.values()]


def same(first: list[Fit], second: list[Fit]) -> bool:
    mine, others = weights_of(first), weights_of(second)
    return (
        len(mine) == len(others)
        and all(map(torch.equal, mine, others))
        and [one.history for one in first] == [one.history for one in second]
        and [one.best_epoch for one in first] == [one.best_epoch for one in second]
    )


@pytest.mark.parametrize("keep", ["best", "last", "softmax-average", "weight-average"])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_at_once_is_one_after_another_up_to_rounding(optimizer: str, keep: str) -> None:
    recipe = replace(RECIPE, optimizer=optimizer, keep=keep)
    at_once, one_by_one = fit_together(tasks(), VAL, recipe), in_turn(recipe)
    for mine, theirs in zip(at_once, one_by_one, strict=True):
        assert mine.best_epoch == theirs.best_epoch
        assert len(mine.history) == len(theirs.history) == RECIPE.epochs
        for record, other in zip(mine.history, theirs.history, strict=True):
            assert record == pytest.approx(other, abs=1e-5)
        ours, others = (predict(task(0).model, one.snapshots, VAL.images) for one in (mine, theirs))
        torch.testing.assert_close(ours, others, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("optimizer", "keep"), [("adam", "softmax-average"), ("sgd", "best")])
@pytest.mark.parametrize("batch_size", [16, 7])
def test_a_net_has_the_same_bytes_whatever_is_trained_beside_it(batch_size: int, optimizer: str, keep: str) -> None:
    recipe = replace(RECIPE, optimizer=optimizer, keep=keep, batch_size=batch_size)
    everything = fit_together(tasks(), VAL, recipe)
    for number in range(len(COUNTS)):
        assert same(fit_together([task(number)], VAL, recipe), everything[number : number + 1]), number
    assert same(fit_together(tasks()[1::2], VAL, recipe), everything[1::2])


@pytest.mark.parametrize("how", ["in rounds", "from the file at each step", "with two threads"])
def test_memory_and_threads_change_no_byte(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fit_together(tasks(), VAL, RECIPE)
    if how == "in rounds":
        monkeypatch.setattr(together, "AT_ONCE", 2 * 4 * RECIPE.batch_size * width_of(WIDTH))
    elif how == "from the file at each step":
        monkeypatch.setattr(together, "KEPT", 0)
    else:
        monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert same(fit_together(tasks(), VAL, RECIPE), before)


def test_each_has_patience_of_its_own() -> None:
    recipe = replace(RECIPE, epochs=40, patience=2, keep="best", lr=0.03)
    at_once, one_by_one = fit_together(tasks(), VAL, recipe), in_turn(recipe)
    lengths = [len(one.history) for one in at_once]
    assert len(set(lengths)) > 1, "or nothing is tested here"
    assert max(lengths) < 40
    assert lengths == [len(one.history) for one in one_by_one]
    for number in range(len(COUNTS)):
        assert same(fit_together([task(number)], VAL, recipe), at_once[number : number + 1])


def test_every_epoch_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "AT_ONCE", 3 * 4 * RECIPE.batch_size * width_of(WIDTH))  # three, then two
    told: list[int] = []
    fit_together(tasks(), VAL, RECIPE, told.append)
    assert told == [2, 4, 6, 8, 11, 14, 17, 20] or told == [3, 6, 9, 12, 14, 16, 18, 20]


def test_one_that_diverges_is_one_sentence() -> None:
    with pytest.raises(RunError, match=r"diverged in epoch \d.*learning rate"):
        fit_together(tasks(), VAL, replace(RECIPE, optimizer="sgd", lr=1e30))


def test_gradients_are_those_of_autograd() -> None:
    models = [task(number).model for number in range(3)]
    generator = torch.Generator().manual_seed(2)
    images, share = torch.randn(3, 16, WIDTH, generator=generator), torch.rand(3, 16, generator=generator)
    target = torch.arange(48).view(3, 16) % CLASSES
    expected = []
    for model, seen, labels, weigh in zip(models, images, target, share, strict=True):
        losses = torch.nn.functional.cross_entropy(model.net(seen), labels, reduction="none")
        expected.append(torch.autograd.grad((losses * weigh).sum(), list(model.parameters())))
    stack = Stack(models)
    features = torch.zeros(3, 16, stack.width)
    features[..., :WIDTH], features[..., WIDTH] = images, 1
    stack.gradients(features, target, share)
    for found, (weight, bias) in zip(stack.slopes, expected, strict=True):
        torch.testing.assert_close(found[:, :WIDTH], weight)
        torch.testing.assert_close(found[:, WIDTH], bias)
        assert not found[:, WIDTH + 1 :].any(), "what fills the rows up learns nothing"


@pytest.mark.parametrize(
    ("net", "changed", "answer"),
    [
        ("head", {}, True),
        ("head", {"patience": 3, "optimizer": "sgd"}, True),
        ("head-mlp", {}, False),
        ("mlp", {}, False),
        ("resnet20", {}, False),
        ("head", {"keep": "ema"}, False),
        ("head", {"precision": "bfloat16"}, False),
        ("head", {"augment": True}, False),
    ],
)
def test_what_is_trained_at_once(net: str, changed: dict[str, object], answer: bool) -> None:
    assert together.possible(net, replace(RECIPE, **changed)) is answer  # type: ignore[arg-type]
