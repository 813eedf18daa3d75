"""What one would write oneself with torch and torchvision: ERD as a loop over data loaders, member by member.

    given = as_the_user_has_them(run)
    scores = users_loop(run, labels, given, epochs)

(a) of benchmarks/speed.py compares ours with it; docs/speed.md says how.
"""

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from measuring import say
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import ConcatDataset, DataLoader, Dataset

from erd.data import packed
from erd.runs.folder import RunDir
from erd.training.members import load_net


@dataclass(frozen=True)
class Given:
    """Images in memory, and the mean and deviation of S that the classifier was trained with."""

    train: tuple[Tensor, Tensor]  # images and labels
    val: tuple[Tensor, Tensor]
    batch: Tensor
    mean: float
    std: float

    def items(self, images: Tensor, labels: Tensor) -> "UsersSet":
        return UsersSet(images, labels, self.mean, self.std)


class UsersSet(Dataset[tuple[Tensor, int]]):
    """A data set as torchvision has it: item by item an array, a PIL image, ToTensor, Normalize."""

    def __init__(self, images: Tensor, labels: Tensor, mean: float, std: float) -> None:
        self.images, self.labels, self.mean, self.std = images, labels, mean, std

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = Image.fromarray(self.images[index].numpy())
        return normalized(to_tensor(image), self.mean, self.std), int(self.labels[index])


def to_tensor(image: Image.Image) -> Tensor:
    """What torchvision's ToTensor does with a PIL image; torchvision itself takes seconds to import."""
    pixels = torch.from_numpy(np.array(image, np.uint8, copy=True))
    pixels = pixels.view(image.size[1], image.size[0], len(image.getbands()))
    return pixels.permute(2, 0, 1).contiguous().to(torch.float32).div(255)


def normalized(pixels: Tensor, mean: float, std: float) -> Tensor:
    """What its Normalize does."""
    means, stds = torch.as_tensor((mean,), dtype=pixels.dtype), torch.as_tensor((std,), dtype=pixels.dtype)
    return pixels.clone().sub_(means.view(-1, 1, 1)).div_(stds.view(-1, 1, 1))


def users_net(run: RunDir) -> nn.Module:
    """The pretrained net as a plain torch module, without our normalisation inside."""
    model, _ = load_net(run.pretrained)
    return model.net


def as_the_user_has_them(run: RunDir) -> Given:
    labeled, batch = packed.read(run.labeled), packed.read(run.batch)
    model, _ = load_net(run.pretrained)
    train, val = ((labeled.images[labeled.rows(name).rows], labeled.labels_of(name)) for name in ("train", "val"))
    return Given(train, val, batch.images.clone(), model.mean.item(), model.std.item())


def users_member(net: nn.Module, label: int, given: Given, epochs: int) -> tuple[Tensor, dict[str, float]]:
    """Fine-tune on S ∪ (U, label), keep the best epoch on V; softmax of U, and seconds of an epoch and of scoring."""
    batch = given.items(given.batch, torch.full((len(given.batch),), label))
    train_loader: DataLoader[Any] = DataLoader(
        ConcatDataset([given.items(*given.train), batch]),
        batch_size=128,
        shuffle=True,
        generator=torch.Generator().manual_seed(label),
    )
    val_loader = DataLoader(given.items(*given.val), batch_size=1000)
    batch_loader = DataLoader(batch, batch_size=1000)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    best, best_weights = -1.0, net.state_dict()
    started = time.perf_counter()
    for _ in range(epochs):
        net.train()
        for images, labels in train_loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(images), labels)
            loss.backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            right = sum((net(images).argmax(1) == labels).sum().item() for images, labels in val_loader)
        if right > best:
            best, best_weights = right, copy.deepcopy(net.state_dict())
    trained = time.perf_counter()
    net.load_state_dict(best_weights)
    net.eval()
    with torch.no_grad():
        softmax = torch.cat([net(images).softmax(1) for images, _ in batch_loader])
    return softmax, {"epoch": (trained - started) / epochs, "score": time.perf_counter() - trained}


def users_loop(run: RunDir, labels: Sequence[int], given: Given, epochs: int) -> np.ndarray:
    """K members one after another, and the mean distance over their pairs."""
    softmax: list[Tensor] = []
    for label in labels:
        say(f"    the user's member {len(softmax) + 1} of {len(labels)}")
        softmax.append(users_member(users_net(run), label, given, epochs)[0])
    pairs = [(p - q).abs().sum(1) / 2 for i, p in enumerate(softmax) for q in softmax[:i]]
    return torch.stack(pairs).mean(0).numpy()
