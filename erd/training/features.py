"""What a net makes of images before its last layer.

penultimate(model, packed.read(run.batch).rows(), device)          # N×D
"""

import torch
from torch import Tensor, nn

from erd import nets
from erd.data.packed import Rows
from erd.nets import Classifier
from erd.training.batches import Mixture, in_order

BATCH = 256  # images through the net at once


@torch.no_grad()  # not inference mode: one may train on what one gets
def penultimate(model: Classifier, images: Rows, device: torch.device | str = "cpu", batch: int = BATCH) -> Tensor:
    """What the last linear layer of a net is given: N×D, on the CPU."""
    model.eval()
    kept: list[Tensor] = []

    def hook(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        kept.append(inputs[0].cpu())

    handle = nets.head(model).register_forward_pre_hook(hook)
    try:
        for part in in_order(Mixture(images, device=device), batch):
            model(part)
    finally:
        handle.remove()
    return torch.cat(kept)
