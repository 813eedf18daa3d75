"""Learning with an augmented class: a classifier with one more class for everything novel, without one label of it.

Zhang, Zhao, Ma & Zhou, NeurIPS 2020. With the share θ of known images in the batch, (1 − θ)·P_novel = P_U − θ·P_known,
so the one-versus-rest risk over the batch's classes, known and novel, is

    θ·E_S[Ψ(f, y)] + max(0, E_U[Ψ(f, novel)] − θ·E_S[Ψ(f, novel)]),   Ψ(f, k) = ψ(f_k) + Σ_{i≠k} ψ(−f_i)

with ψ(z) = sigmoid(−z). The second part is the risk on novel images and cannot be negative; where a step makes it so,
the step goes up its gradient, as in nnPU: the paper's correction for deep nets. Score: f_novel − max_y f_y, by which
its rule decides; larger = more novel.

θ is estimated (BBE; the paper's own estimate is by kernel means), never told. Trained from scratch on the pretraining
schedule; the epoch and the learning rate (as in nnPU) are those with the least risk, V in the place of S.
"""

import torch
from torch import Tensor

from erd.bench.detectors import Detector, Given, method
from erd.bench.detectors.shared.trained import KNOWN, UNLABELED, estimated_known_share, least_loss, mean_of
from erd.nets import Classifier
from erd.training.loop import Loss


def one_versus_rest(outputs: Tensor, labels: Tensor) -> Tensor:
    """Ψ(f, k) of each row."""
    own = outputs.gather(1, labels[:, None])[:, 0]
    return torch.sigmoid(outputs).sum(1) - torch.sigmoid(own) + torch.sigmoid(-own)


def parts_of_risk(
    outputs: Tensor, labels: Tensor, known: Tensor, unlabeled: Tensor, share: float
) -> tuple[Tensor, Tensor]:
    """What known images cost, and what novel images cost: an estimate, negative where it shows overfitting."""
    novel = one_versus_rest(outputs, torch.full_like(labels, outputs.shape[1] - 1))
    on_known = share * mean_of(one_versus_rest(outputs, labels), known)
    return on_known, mean_of(novel, unlabeled) - share * mean_of(novel, known)


def risk(share: float) -> Loss:
    def loss(outputs: Tensor, labels: Tensor, part: Tensor) -> Tensor:
        known, novel = parts_of_risk(outputs, labels, part == KNOWN, part == UNLABELED, share)
        return torch.where(novel >= 0, known + novel, -novel)

    return loss


def margin(outputs: Tensor) -> Tensor:
    return outputs[:, -1] - outputs[:, :-1].amax(1)


@method(
    "u-lac",
    paper="Zhang, Zhao, Ma & Zhou, NeurIPS 2020 (EULAC)",
    formula="f_novel(x) − max_y f_y(x); f minimises the unbiased risk with a class for the novel",
    setting="semi-supervised",
    sees=("train", "val", "batch"),
)
def fit(given: Given) -> Detector:
    share = estimated_known_share(given)
    labels = torch.cat([given.val.labels, torch.zeros(len(given.batch), dtype=torch.int64)])
    known = torch.arange(len(labels)) < len(given.val)

    def watch(model: Classifier) -> tuple[float, float]:
        outputs = torch.cat([given.outputs(model, rows) for rows in (given.val.images, given.batch)])
        on_known, on_novel = parts_of_risk(outputs, labels, known, ~known, share)
        loss = (on_known + on_novel.clamp_min(0)).item()
        return loss, -loss

    model = least_loss(given, len(given.classes) + 1, risk(share), watch)
    return Detector(lambda images: margin(given.outputs(model, images)))
