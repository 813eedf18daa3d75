"""Adam and SGD by torch's own fused kernels, called in their functional form.

The classes of torch.optim do the same arithmetic to the bit, but their first step imports torch's compiler: some three
seconds in every process that trains, longer than many a member needs.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim.sgd import sgd

SLOTS = {"adam": ("exp_avg", "exp_avg_sq"), "sgd": ("momentum",)}


class Optimizer:
    """One step after another; `lr` may be changed between them."""

    def __init__(
        self, weights: Iterable[Parameter], kind: str, *, lr: float, momentum: float = 0.0, weight_decay: float = 0.0
    ) -> None:
        self.weights = [weight for weight in weights if weight.requires_grad]
        self.kind, self.lr, self.momentum, self.weight_decay = kind, lr, momentum, weight_decay
        # In the weights' own memory layout: the kernels do not look at strides.
        self.slots = {slot: [torch.zeros_like(weight) for weight in self.weights] for slot in SLOTS[kind]}
        self.steps = torch.zeros((), device=self.weights[0].device)  # Adam's kernel wants a tensor

    def zero_grad(self) -> None:
        for weight in self.weights:
            weight.grad = None

    def step(self) -> None:
        step([self])

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must hold."""
        named = {f"{slot}/{i}": tensor for slot, tensors in self.slots.items() for i, tensor in enumerate(tensors)}
        return named | {"steps": self.steps}

    def load(self, state: dict[str, Tensor]) -> None:
        for slot, tensors in self.slots.items():
            for i, tensor in enumerate(tensors):
                tensor.copy_(state[f"{slot}/{i}"])
        self.steps.copy_(state["steps"])


@torch.no_grad()
def step(several: Sequence[Optimizer]) -> None:
    """A step of each, all in one call; they are of one kind, with one learning rate."""
    first = several[0]
    weights: list[Tensor] = [weight for one in several for weight in one.weights]
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    assert len(weights) == len(gradients), "a weight without a gradient"

    def slot(name: str) -> list[Tensor]:
        return [tensor for one in several for tensor in one.slots[name]]

    if first.kind == "adam":
        torch._foreach_add_([one.steps for one in several], 1)
        steps = [one.steps for one in several for _ in one.weights]
        torch._fused_adam_(  # torch.optim.adam sorts the weights by device first, which takes half as long as this
            weights, gradients, slot("exp_avg"), slot("exp_avg_sq"), [], steps, amsgrad=False, beta1=0.9, beta2=0.999,
            lr=first.lr, weight_decay=first.weight_decay, eps=1e-8, maximize=False,
        )  # fmt: skip
    else:
        sgd(
            weights, gradients, list(slot("momentum")), fused=True, weight_decay=first.weight_decay,
            momentum=first.momentum, lr=first.lr, dampening=0.0, nesterov=False, maximize=False,
        )  # fmt: skip
