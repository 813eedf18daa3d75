"""scikit-learn: outlier detectors with thresholds of their own, and a classifier that asks if the batch is another."""

from peer import Array, Found, Peer, Promise


def one_class_svm(x: Array, y: Array, u: Array) -> Found:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import OneClassSVM

    model = make_pipeline(StandardScaler(), OneClassSVM()).fit(x)
    return Found(-model.decision_function(u), model.predict(u) == -1)


def local_outlier_factor(x: Array, y: Array, u: Array) -> Found:
    from sklearn.neighbors import LocalOutlierFactor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LocalOutlierFactor(novelty=True)).fit(x)
    return Found(-model.decision_function(u), model.predict(u) == -1)


def isolation_forest(x: Array, y: Array, u: Array) -> Found:
    from sklearn.ensemble import IsolationForest

    model = IsolationForest(random_state=0).fit(x)
    return Found(-model.decision_function(u), model.predict(u) == -1)


def classifier_test(x: Array, y: Array, u: Array) -> Found:
    """As alibi-detect's ClassifierDrift does it: labelled or batch? Images that the classifier did not see are
    compared by a Kolmogorov–Smirnov test."""
    import numpy as np
    from scipy.stats import ks_2samp
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    both, batch = np.concatenate([x, u]), np.repeat([False, True], [len(x), len(u)])
    model = make_pipeline(StandardScaler(), LogisticRegression(C=1e-3, class_weight="balanced"))
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    seen = cross_val_predict(model, both, batch, cv=folds, method="decision_function")
    return Found(p=float(ks_2samp(seen[batch], seen[~batch], alternative="less").pvalue))


PEERS = (
    # nu = 0.5: at most so many of the labelled images are outside.
    Peer("sklearn-ocsvm", "scikit-learn", "sklearn", one_class_svm, ("scores", "flags"), Promise("known", 0.5)),
    Peer("sklearn-lof", "scikit-learn", "sklearn", local_outlier_factor, ("scores", "flags")),
    Peer("sklearn-iforest", "scikit-learn", "sklearn", isolation_forest, ("scores", "flags")),
    Peer("classifier-test", "scikit-learn", "sklearn", classifier_test, ("p",), Promise("batches", 0.05)),
)
