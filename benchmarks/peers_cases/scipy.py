"""SciPy: is any feature of the batch distributed otherwise? What alibi-detect's KSDrift does."""

from peer import Array, Found, Peer, Promise


def kolmogorov_smirnov(x: Array, y: Array, u: Array) -> Found:
    from scipy.stats import ks_2samp

    p = ks_2samp(x, u, method="asymp").pvalue
    return Found(p=min(1.0, float(p.min() * len(p))))


PEERS = (Peer("scipy-ks", "scipy", "scipy", kolmogorov_smirnov, ("p",), Promise("batches", 0.05)),)
