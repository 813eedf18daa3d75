"""One step of training, on whatever device: forward, loss, backward, new weights.

    step = steps.of(model, optimizer, loss, "auto")
    value, logits = step(images, target, part)     # the logits are good until the next step

A net may know its gradients by hand (erd/nets/mlp.py). On a GPU convolutions run in bfloat16, weights and loss in
float32. With `graphs` the step is recorded once as a CUDA graph and replayed, since to launch the kernels of a small
net takes longer than to run them; no GPU has run that yet, so it has to be asked for (`pretrain.graphs`,
`finetune.graphs`). A CPU has neither: bfloat16 is slower there, and nothing is launched.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from erd.nets import Classifier, uses_convolutions
from erd.training.optimizers import Optimizer

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # what the net gives for a batch, labels, parts → one number
Results = tuple[Tensor, Tensor]  # loss, logits
Step = Callable[[Tensor, Tensor, Tensor | None], Results]  # of images, labels, parts
Work = Callable[[], Results]
Recorder = Callable[[Work], tuple[Callable[[], None], Results]]  # what replays it, and where the results will be
WARM = 3  # steps before a recording: libraries set themselves up in them


def of(model: Classifier, optimizer: Optimizer, loss: Loss | None, precision: str, *, graphs: bool = False) -> Step:
    """The way for this net on its device. Only where `graphs` asks for it the step is recorded, and with no loss of
    one's own, which may look at numbers."""
    device = next(model.parameters()).device
    step = eager(model, optimizer, loss, mixed=in_bfloat16(model, device, precision))
    return Recorded(step, optimizer, on_gpu, aside) if graphs and records(device) and loss is None else step


def records(device: torch.device) -> bool:
    """Whether a step can be recorded there."""
    return device.type == "cuda"


def in_bfloat16(model: Classifier, device: torch.device, precision: str) -> bool:
    if precision != "auto":
        return precision == "bfloat16"
    return device.type == "cuda" and uses_convolutions(model) and torch.cuda.is_bf16_supported()


def eager(model: Classifier, optimizer: Optimizer, loss: Loss | None, *, mixed: bool) -> Step:
    """Operation by operation."""
    device = next(model.parameters()).device
    by_hand = getattr(model.net, "gradients", None) if loss is None and not mixed else None

    def step(images: Tensor, target: Tensor, part: Tensor | None) -> Results:
        if by_hand is not None:
            value, logits = by_hand(model.normalised(images), target)
        else:
            if mixed:  # without its cache of weights, which a recording must not have
                with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
                    logits = model(images)
                logits = logits.float()
            else:
                logits = model(images)
            if loss is None:
                value = F.cross_entropy(logits, target)
            else:
                assert part is not None
                value = loss(logits, target, part)
            optimizer.zero_grad()
            value.backward()
        optimizer.step()
        return value.detach(), logits.detach()

    return step


class Recorded:
    """A step that is replayed for every full batch; others, such as an epoch's last, are done as they come."""

    def __init__(self, step: Step, optimizer: Optimizer, record: Recorder, warm: Callable[[Work], Results]) -> None:
        self.step, self.optimizer, self.record, self.warm = step, optimizer, record, warm
        self.warmed = 0
        self.lr: float | None = None  # of the recording: it is part of it
        self.images = self.target = self.value = self.logits = torch.empty(0)
        self.replay: Callable[[], None] = lambda: None

    def __call__(self, images: Tensor, target: Tensor, part: Tensor | None) -> Results:
        if self.warmed == 0:
            self.images, self.target = torch.empty_like(images), torch.empty_like(target)
        if images.shape != self.images.shape:
            return self.step(images, target, part)
        self.images.copy_(images)
        self.target.copy_(target)
        if self.warmed < WARM:
            self.warmed += 1
            return self.warm(self._work)
        if self.lr != self.optimizer.lr:
            self.optimizer.zero_grad()  # the recording has gradients of its own
            self.replay, (self.value, self.logits) = self.record(self._work)
            self.lr = self.optimizer.lr
        self.replay()
        return self.value.clone(), self.logits

    def _work(self) -> Results:
        return self.step(self.images, self.target, None)


def on_gpu(work: Work) -> tuple[Callable[[], None], Results]:
    """Nothing is computed while it is recorded."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = work()
    return graph.replay, results


def aside(work: Work) -> Results:
    """On a stream of its own, as recordings are made: what autograd sets up for a stream stays with it."""
    stream, main = torch.cuda.Stream(), torch.cuda.current_stream()
    stream.wait_stream(main)
    with torch.cuda.stream(stream):
        results = work()
    main.wait_stream(stream)
    return results
