"""Adam and SGD by torch's own fused kernels, called in their functional form.

The classes of torch.optim do the same arithmetic to the bit, but their first step imports torch's compiler: some three
seconds in every process that trains, longer than many a member needs.
"""

from collections.abc import Iterable

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
        self.steps = [torch.zeros((), device=weight.device) for weight in self.weights]  # as many as Adam's kernel asks

    def zero_grad(self) -> None:
        for weight in self.weights:
            weight.grad = None

    @torch.no_grad()
    def step(self) -> None:
        weights: list[Tensor] = [weight for weight in self.weights if weight.grad is not None]
        assert len(weights) == len(self.weights), "a weight without a gradient"
        gradients = [weight.grad for weight in self.weights if weight.grad is not None]
        if self.kind == "adam":
            torch._foreach_add_(self.steps, 1)
            torch._fused_adam_(  # torch.optim.adam sorts the weights by device first, which takes half as long as this
                weights, gradients, self.slots["exp_avg"], self.slots["exp_avg_sq"], [], self.steps, amsgrad=False,
                beta1=0.9, beta2=0.999, lr=self.lr, weight_decay=self.weight_decay, eps=1e-8, maximize=False,
            )  # fmt: skip
        else:
            sgd(
                weights, gradients, list(self.slots["momentum"]), fused=True, weight_decay=self.weight_decay,
                momentum=self.momentum, lr=self.lr, dampening=0.0, nesterov=False, maximize=False,
            )  # fmt: skip

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must hold."""
        named = {f"{slot}/{i}": tensor for slot, tensors in self.slots.items() for i, tensor in enumerate(tensors)}
        return named | {"steps": torch.stack(self.steps)}

    def load(self, state: dict[str, Tensor]) -> None:
        for slot, tensors in self.slots.items():
            for i, tensor in enumerate(tensors):
                tensor.copy_(state[f"{slot}/{i}"])
        for steps, saved in zip(self.steps, state["steps"], strict=True):
            steps.copy_(saved)
