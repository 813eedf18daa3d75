"""TorchDrift: is the batch as a whole unlike the labelled images? Such tests see any drift, and name no image."""

from peer import Array, Found, Peer, Promise


def mean_discrepancy(x: Array, y: Array, u: Array) -> Found:
    import torch
    from torchdrift.detectors import KernelMMDDriftDetector

    torch.manual_seed(0)
    detector = KernelMMDDriftDetector(n_perm=200)  # not 1,000: all pairs of images are compared each time
    detector.fit(torch.from_numpy(x[: len(u)]))
    return Found(p=float(detector.compute_p_value(torch.from_numpy(u))))


def kolmogorov_smirnov(x: Array, y: Array, u: Array) -> Found:
    import torch
    from torchdrift.detectors import KSDriftDetector

    detector = KSDriftDetector()
    detector.fit(torch.from_numpy(x))
    return Found(p=float(detector.compute_p_value(torch.from_numpy(u))))


AT_5 = Promise("batches", 0.05)

PEERS = (
    Peer("torchdrift-mmd", "torchdrift", "torchdrift", mean_discrepancy, ("p",), AT_5),
    Peer("torchdrift-ks", "torchdrift", "torchdrift", kolmogorov_smirnov, ("p",), AT_5),
)
