"""Flags at a false discovery rate, written out with scikit-learn and SciPy: nonconform, which has them, wants Python
3.12."""

from peer import Array, Found, Peer, Promise


def split_conformal(x: Array, y: Array, u: Array) -> Found:
    """Bates et al. 2023: one half of the labelled images to learn from, the other to compare with."""
    from scipy.stats import false_discovery_control
    from sklearn.model_selection import train_test_split
    from sklearn.neighbors import LocalOutlierFactor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    train, held_out = train_test_split(x, test_size=0.5, random_state=0)
    model = make_pipeline(StandardScaler(), LocalOutlierFactor(novelty=True)).fit(train)
    scores, known = -model.decision_function(u), -model.decision_function(held_out)
    p = (1 + (known >= scores[:, None]).sum(1)) / (len(known) + 1)
    return Found(scores, false_discovery_control(p) <= 0.05)


def ada_detect(x: Array, y: Array, u: Array) -> Found:
    """Marandon et al. 2024: a classifier of labelled images against the batch with held-out images hidden in it."""
    import numpy as np
    from scipy.stats import false_discovery_control
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import train_test_split
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    train, held_out = train_test_split(x, test_size=min(len(u), len(x) // 2), random_state=0)
    mixed = np.concatenate([held_out, u])
    model = make_pipeline(StandardScaler(), LogisticRegression(C=1e-3))
    model.fit(np.concatenate([train, mixed]), np.repeat([0, 1], [len(train), len(mixed)]))
    known, scores = np.split(model.decision_function(mixed), [len(held_out)])
    p = (1 + (known >= scores[:, None]).sum(1)) / (len(known) + 1)
    return Found(scores, false_discovery_control(p) <= 0.05)


FDR = Promise("flagged", 0.05)

PEERS = (
    Peer("conformal-lof", "scikit-learn", "sklearn", split_conformal, ("scores", "flags"), FDR),
    Peer("adadetect", "scikit-learn", "sklearn", ada_detect, ("scores", "flags"), FDR),
)
