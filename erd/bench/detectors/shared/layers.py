"""What a net sees inside, and Gaussians on it: shared by the methods that look beyond the logits.

    gaussians = Gaussians.of(seen, labels)           # N×D of whatever net
    gaussians.distances(asked).amin(1)

    distances = LayerDistances.of(given, given.classifier, given.train)
    distances(images, noise=0.0)                     # N×layers, to the nearest class: what Mahal-U works with

It works for any net of `erd.nets`: the layers are found by their kind, not by their names.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from erd.bench.detectors import Given, Labeled
from erd.data.packed import Rows
from erd.nets import Classifier
from erd.training.batches import Mixture, in_order

BATCH = 256  # images at once: the maps of all layers of a wide net together fill memory


def some(images: Rows, count: int, generator: torch.Generator) -> tuple[Rows, Tensor]:
    """At most `count` of the images, drawn at random, and their positions."""
    chosen = torch.randperm(len(images), generator=generator)[:count]
    return Rows(images.images, chosen if images.rows is None else images.rows[chosen]), chosen


def layers(model: Classifier) -> list[nn.Module]:
    """Where a net can be looked into, from first to last: each ReLU and each block that is more than a sequence.

    mlp: 3 hidden layers, resnet20: 9 blocks, resnet18: 8, wrn28_10: 12 and the last ReLU, vgg16: 13 ReLUs,
    densenet121: 4 blocks and a ReLU before each.
    """
    found: list[nn.Module] = []

    def walk(module: nn.Module) -> None:
        for part in module.children():
            if isinstance(part, nn.Sequential):
                walk(part)
            elif isinstance(part, nn.ReLU) or next(part.children(), None) is not None:
                found.append(part)

    walk(model.net)
    weighty: list[nn.Module] = [part for part in model.net.modules() if isinstance(part, nn.Conv2d | nn.Linear)]
    # A net of one's own may have neither; of one linear layer on features there are only these.
    return found or weighty[:-1] or [next(iter(model.net.children()))]


def stages(model: Classifier) -> list[nn.Module]:
    """The layers that end a stage: of those whose maps have the same shape, the last; of an MLP all."""
    found = layers(model)
    channels, size = int(model.made_of["channels"]), int(model.made_of["image_size"])
    blank = torch.zeros(1, channels, size, size, device=model.mean.device)
    with torch.inference_mode():
        model.eval()
        _, maps = activations(model, blank, found, lambda output: output)
    last = {(tuple(seen.shape) if seen.ndim == 4 else number): number for number, seen in enumerate(maps)}
    return [found[number] for number in sorted(last.values())]


def pooled(output: Tensor) -> Tensor:
    """A layer's output as N×D: of maps the mean over their pixels."""
    return output if output.ndim == 2 else output.flatten(2).mean(2)


def activations(
    model: Classifier, images: Tensor, inside: list[nn.Module], reduce: Callable[[Tensor], Tensor] = pooled
) -> tuple[Tensor, list[Tensor]]:
    """Logits, and what each layer gives, of one batch; gradients flow if they are on.

    `reduce` is applied at once: a later layer may work in place.
    """
    kept: dict[int, Tensor] = {}

    def keep(number: int) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def hook(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            kept[number] = reduce(output)

        return hook

    handles = [layer.register_forward_hook(keep(number)) for number, layer in enumerate(inside)]
    try:
        logits = model(images)
    finally:
        for handle in handles:
            handle.remove()
    return logits, [kept[number] for number in range(len(inside))]


@torch.no_grad()  # not inference mode: a method may train on what it gets
def features(
    given: Given,
    model: Classifier,
    images: Rows,
    inside: list[nn.Module],
    reduce: Callable[[Tensor], Tensor] = pooled,
) -> list[Tensor]:
    """What each layer gives for all images, reduced, on the CPU."""
    model.eval()
    parts: list[list[Tensor]] = [[] for _ in inside]
    for batch in in_order(Mixture(images, device=given.device), BATCH):
        for part, seen in zip(parts, activations(model, batch, inside, reduce)[1], strict=True):
            part.append(seen.cpu())
    return [torch.cat(part) for part in parts]


@dataclass(frozen=True)
class Gaussians:
    """One Gaussian a class, all with one covariance: Σ = 1/N Σ_i (x_i − μ_{y_i})(x_i − μ_{y_i})ᵀ."""

    means: Tensor  # classes×D, float64
    whitening: Tensor  # D×D: its product with its own transpose is Σ⁻¹

    @classmethod
    def of(cls, seen: Tensor, labels: Tensor | None = None, shrinkage: float | None = None) -> "Gaussians":
        """Fitted to N×D features; without labels one Gaussian for all. Classes without an image are left out.

        Units that are dead on S, and fewer images than features, make Σ singular. So it is shrunk towards a multiple of
        1, by a share that the images decide (OAS, Chen et al. 2010: hardly any where there are many); 0 for none.
        """
        seen = seen.double()
        labels = torch.zeros(len(seen), dtype=torch.int64) if labels is None else labels
        groups = [seen[labels == label] for label in labels.unique()]
        means = torch.stack([group.mean(0) for group in groups])
        centred = torch.cat([group - mean for group, mean in zip(groups, means, strict=True)])
        count, width = centred.shape
        covariance = centred.T @ centred / count
        trace, square = covariance.trace(), (covariance**2).sum()
        if shrinkage is None:
            surplus = (count + 1 - 2 / width) * (square - trace**2 / width)
            share = ((1 - 2 / width) * square + trace**2) / surplus
            shrinkage = float(share.nan_to_num(1.0).clamp(0, 1)) if surplus > 0 else 1.0
        covariance = (1 - shrinkage) * covariance + shrinkage * trace / width * torch.eye(width, dtype=torch.float64)
        values, vectors = torch.linalg.eigh(covariance)
        sound = values > values[-1] * width * torch.finfo(torch.float64).eps
        return cls(
            means, vectors * torch.where(sound, values.clamp_min(0).rsqrt(), 0.0)
        )  # elsewhere the pseudo-inverse

    def distances(self, seen: Tensor) -> Tensor:
        """Squared Mahalanobis distances to every class, N×classes."""
        whitening = self.whitening.to(seen.device)
        white, means = seen.double() @ whitening, self.means.to(seen.device) @ whitening
        return torch.stack([((white - mean) ** 2).sum(1) for mean in means], 1)

    def nearest(self, seen: Tensor) -> Tensor:
        return self.distances(seen).amin(1)


def relative(classes: Gaussians, background: Gaussians, seen: Tensor) -> Tensor:
    """Ren et al. 2021: the distance to the nearest class beyond that to all known images as one Gaussian."""
    return classes.nearest(seen) - background.nearest(seen)


@dataclass(frozen=True)
class LayerDistances:
    """Lee et al. 2018: the Mahalanobis distance to the nearest class in every stage of a net, N×stages."""

    given: Given
    model: Classifier
    inside: list[nn.Module]
    gaussians: list[Gaussians]

    @classmethod
    def of(cls, given: Given, model: Classifier, train: Labeled) -> "LayerDistances":
        inside = stages(model)
        seen = features(given, model, train.images, inside)
        return cls(given, model, inside, [Gaussians.of(layer, train.labels) for layer in seen])

    def __call__(self, images: Rows, noise: float = 0.0) -> Tensor:
        """Each stage sees the images moved by `noise` (of pixel values 0..1) to where its own distance shrinks.

        Known images come nearer by that than novel ones.
        """
        if noise == 0:
            seen = features(self.given, self.model, images, self.inside)
            return torch.stack([fit.nearest(layer) for fit, layer in zip(self.gaussians, seen, strict=True)], 1)
        self.model.eval()
        batches = in_order(Mixture(images, device=self.given.device), BATCH)
        return torch.cat([self._noisy(batch.float(), noise) for batch in batches])

    def _noisy(self, batch: Tensor, noise: float) -> Tensor:
        columns = []
        for layer, fit in zip(self.inside, self.gaussians, strict=True):

            def distance(images: Tensor, layer: nn.Module = layer, fit: Gaussians = fit) -> Tensor:
                return fit.nearest(activations(self.model, images, [layer])[1][0])

            columns.append(distance(descend(distance, batch, noise, self.model.unit)).detach().cpu())
        return torch.stack(columns, 1)


def descend(value: Callable[[Tensor], Tensor], images: Tensor, noise: float, unit: float = 255.0) -> Tensor:
    """Images (values 0..255) one step of `noise` (of 0..1) per pixel down the sign of the gradient of `value`.

    The sum of the values is what is differentiated: no image's step depends on the others.
    """
    images = images.detach().requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(value(images).sum(), images)
    return images.detach() - unit * noise * gradient.sign()


def softmax_layer(seen: Tensor, labels: Tensor, strength: float = 1.0) -> Callable[[Tensor], Tensor]:
    """One minus the largest probability of a softmax layer fitted to N×D features; `strength` is the inverse of its
    ridge. For features standardised as `seen` are."""
    from sklearn.linear_model import LogisticRegression  # slow to import

    head = LogisticRegression(max_iter=1000, C=strength).fit(seen.numpy(), labels.numpy())
    return lambda asked: 1 - torch.from_numpy(head.predict_proba(asked.numpy())).amax(1)
