"""cleanlab's OutOfDistribution, with the threshold of its tutorial: below 95% of the labelled images."""

from peer import Array, Found, Peer, Promise


def features(x: Array, y: Array, u: Array) -> Found:
    import numpy as np
    from cleanlab.outlier import OutOfDistribution

    ood = OutOfDistribution()
    labelled = ood.fit_score(features=x)
    batch = ood.score(features=u)
    return Found(-batch, batch < np.percentile(labelled, 5))


def probabilities(x: Array, y: Array, u: Array) -> Found:
    import numpy as np
    from cleanlab.outlier import OutOfDistribution
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model, ood = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)), OutOfDistribution()
    unseen = cross_val_predict(model, x, y, method="predict_proba")
    labelled = ood.fit_score(pred_probs=unseen, labels=y)
    batch = ood.score(pred_probs=model.fit(x, y).predict_proba(u))
    return Found(-batch, batch < np.percentile(labelled, 5))


TWENTIETH = Promise("known", 0.05)

PEERS = (
    Peer("cleanlab-features", "cleanlab", "cleanlab", features, ("scores", "flags"), TWENTIETH),
    Peer("cleanlab-probabilities", "cleanlab", "cleanlab", probabilities, ("scores", "flags"), TWENTIETH),
)
