"""The paper's net for small grey images: three hidden layers of 100."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from erd.nets.registry import net
from erd.settings import recipes

aten = torch.ops.aten


@dataclass(frozen=True)
class Room:
    """What a step writes to, for batches of one size. New memory at each step would be cold, and cost a tenth of it."""

    values: list[Tensor]  # of each layer
    slopes: list[Tensor]  # of the loss, by these values
    one: Tensor


class MLP(nn.Sequential):
    """Flat pixels, linear layers with ReLU between them; and what training asks of it, by hand."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__(*layers)
        self.rooms: dict[tuple[int, torch.device], Room] = {}

    @torch.no_grad()
    def gradients(self, pixels: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-entropy and logits of a batch; the weights get its gradients. The logits are good until the next call.

        The same operations as autograd's, and the same bits. But autograd takes a quarter of a millisecond to find out
        which, and in a net as small as this the whole step takes one.
        """
        layers = [(layer.weight, layer.bias) for layer in self if isinstance(layer, nn.Linear)]
        if (place := (len(pixels), pixels.device)) not in self.rooms:
            values, slopes = ([pixels.new_empty(len(pixels), len(bias)) for _, bias in layers] for _ in range(2))
            self.rooms[place] = Room(values, slopes, pixels.new_ones(()))
        room, last = self.rooms[place], len(layers) - 1
        inputs = [pixels.flatten(1), *room.values]
        for i, (weight, bias) in enumerate(layers):
            value = torch.addmm(bias, inputs[i], weight.t(), out=room.values[i])
            if i < last:
                value.relu_()
        logits = room.values[last]
        log_softmax = logits.log_softmax(1)
        loss, total = aten.nll_loss_forward.default(log_softmax, target, None, 1, -100)
        slope = aten.nll_loss_backward.default(room.one, log_softmax, target, None, 1, -100, total)
        slope = aten._log_softmax_backward_data.default(slope, log_softmax, 1, logits.dtype)
        for i in reversed(range(len(layers))):
            weight, bias = layers[i]
            if weight.grad is None or bias.grad is None:
                weight.grad, bias.grad = torch.empty_like(weight), torch.empty_like(bias)
            torch.mm(slope.t(), inputs[i], out=weight.grad)
            torch.sum(slope, 0, out=bias.grad)
            if i:
                slope = torch.mm(slope, weight, out=room.slopes[i - 1])
                aten.threshold_backward.grad_input(slope, inputs[i], 0, grad_input=slope)
        return loss, logits


@net("mlp", recipes.MLP)
def mlp(channels: int, image_size: int, classes: int) -> nn.Module:
    """Flat pixels through three hidden layers of 100 with ReLU."""
    widths = [channels * image_size**2, 100, 100, 100]
    hidden = [layer for i, o in pairwise(widths) for layer in (nn.Linear(i, o), nn.ReLU())]
    return MLP(nn.Flatten(), *hidden, nn.Linear(widths[-1], classes))
