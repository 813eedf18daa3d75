"""pytorch-ood: its detectors on the encoder's features, or on the outputs of a linear layer trained on them. They give
scores and no threshold."""

from typing import Any

from peer import Array, Found, Peer


def mahalanobis(x: Array, y: Array, u: Array) -> Found:
    import torch
    from pytorch_ood.detector import Mahalanobis  # type: ignore[import-untyped]

    detector = Mahalanobis(None).fit_features(torch.from_numpy(x), torch.from_numpy(y))
    return Found(detector.predict_features(torch.from_numpy(u)).numpy())


def relative_mahalanobis(x: Array, y: Array, u: Array) -> Found:
    import torch
    from pytorch_ood.detector import RMD

    detector = RMD(None).fit_features(torch.from_numpy(x), torch.from_numpy(y))
    return Found(detector.predict_features(torch.from_numpy(u)).numpy())


def neighbours(x: Array, y: Array, u: Array) -> Found:
    import torch
    from pytorch_ood.detector import KNN

    detector = KNN(None).fit_features(torch.from_numpy(x), torch.from_numpy(y))
    return Found(detector.predict_features(torch.from_numpy(u)).numpy())


def virtual_logit(x: Array, y: Array, u: Array) -> Found:
    import torch
    from pytorch_ood.detector import ViM

    labelled, batch, head = trained_head(x, y, u)
    detector = ViM(None, d=512, w=head.weight, b=head.bias).fit_features(labelled, torch.from_numpy(y))
    return Found(detector.predict_features(batch).numpy())


def energy(x: Array, y: Array, u: Array) -> Found:
    from pytorch_ood.detector import EnergyBased

    _, batch, head = trained_head(x, y, u)
    return Found(EnergyBased.score(head(batch).detach()).numpy())


def trained_head(x: Array, y: Array, u: Array) -> Any:
    import torch

    mean, std = x.mean(0), x.std(0) + 1e-6
    labelled, batch = (torch.from_numpy((part - mean) / std) for part in (x, u))
    torch.manual_seed(0)
    head = torch.nn.Linear(x.shape[1], int(y.max()) + 1)
    optimizer = torch.optim.AdamW(head.parameters(), 1e-3)
    for _ in range(200):
        loss = torch.nn.functional.cross_entropy(head(labelled), torch.from_numpy(y))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return labelled, batch, head


PEERS = (
    Peer("ood-mahalanobis", "pytorch-ood", "pytorch_ood", mahalanobis, ("scores",)),
    Peer("ood-rmd", "pytorch-ood", "pytorch_ood", relative_mahalanobis, ("scores",)),
    Peer("ood-knn", "pytorch-ood", "pytorch_ood", neighbours, ("scores",)),
    Peer("ood-vim", "pytorch-ood", "pytorch_ood", virtual_logit, ("scores",), helpers=(trained_head,)),
    Peer("ood-energy", "pytorch-ood", "pytorch_ood", energy, ("scores",), helpers=(trained_head,)),
)
