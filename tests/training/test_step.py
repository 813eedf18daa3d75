"""Steps as a GPU does them, on a CPU: in bfloat16, and replayed from a recording."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from test_loop import RECIPE, same, train

from erd.nets import Classifier
from erd.runs.configure import settings_for
from erd.training import step as steps
from erd.training.optimizers import Optimizer


def test_in_bfloat16_a_net_learns_and_its_weights_stay_float32() -> None:
    recipe = replace(RECIPE, epochs=8, optimizer="sgd", lr=1e-2, precision="bfloat16")
    result = train(recipe, net="resnet20")
    assert result.history[-1]["val_accuracy"] > 0.9
    assert {tensor.dtype for tensor in result.snapshots[0].values()} == {torch.float32, torch.int64}
    assert not same(result.snapshots, train(replace(recipe, precision="float32"), net="resnet20").snapshots)


@pytest.mark.parametrize("net", ["mlp", "resnet20"])
def test_on_a_cpu_auto_is_float32(net: str) -> None:
    automatic, plain = train(RECIPE, net=net), train(replace(RECIPE, precision="float32"), net=net)
    assert same(automatic.snapshots, plain.snapshots)


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize(("net", "optimizer"), [("mlp", "adam"), ("resnet20", "sgd")])
def test_a_replayed_step_gives_the_bytes_of_one_done_operation_by_operation(
    net: str, optimizer: str, mixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 96 images: 13 full batches of 7 and one of 5; the learning rate falls once.
    recipe = replace(RECIPE, optimizer=optimizer, batch_size=7, keep="last", precision="bfloat16" if mixed else "auto")
    plain = train(recipe, net=net)
    recordings: list[float] = []
    steppers: list[tuple[Classifier, Optimizer]] = []
    eager = steps.eager

    def watched(model: Classifier, optimizer: Optimizer, loss: None, *, mixed: bool) -> steps.Step:
        steppers.append((model, optimizer))
        return eager(model, optimizer, loss, mixed=mixed)

    def record(work: steps.Work) -> tuple[Callable[[], None], steps.Results]:
        """Like a graph's: recording changes nothing, and a replay has the learning rate of the recording."""
        model, optimizer = steppers[-1]
        everything = [*model.state_dict().values(), *optimizer.state().values()]
        before = [tensor.clone() for tensor in everything]
        results = work()
        for tensor, old in zip(everything, before, strict=True):
            tensor.copy_(old)
        lr = optimizer.lr
        recordings.append(lr)

        def replay() -> None:
            now, optimizer.lr = optimizer.lr, lr
            for place, value in zip(results, work(), strict=True):
                place.copy_(value)
            optimizer.lr = now

        return replay, results

    # Only what a CPU cannot do is stood in for: the device's kind, and the two calls of CUDA.
    monkeypatch.setattr(steps, "eager", watched)
    monkeypatch.setattr(steps, "records", lambda device: True)
    monkeypatch.setattr(steps, "on_gpu", record)
    monkeypatch.setattr(steps, "aside", lambda work: work())
    replayed = train(replace(recipe, graphs=True), net=net)
    assert same(replayed.snapshots, plain.snapshots)
    assert replayed.history == plain.history
    assert len(recordings) == 2, "one for each learning rate"


def test_a_step_is_recorded_only_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU has run a recording yet: by default none is made, also where there is a GPU."""
    monkeypatch.setattr(steps, "records", lambda device: True)
    monkeypatch.setattr(steps, "aside", lambda work: pytest.fail("it warms up for a recording"))
    assert train(RECIPE).history
    assert not settings_for().finetune.graphs
    assert not settings_for().pretrain.graphs
