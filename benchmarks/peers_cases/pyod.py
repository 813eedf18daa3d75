"""PyOD: detectors with one threshold for all, the tenth of the labelled images with the highest scores."""

from peer import Array, Found, Peer, Promise


def ecod(x: Array, y: Array, u: Array) -> Found:
    from pyod.models.ecod import ECOD

    model = ECOD().fit(x)
    return Found(model.decision_function(u), model.predict(u) == 1)


def isolation_forest(x: Array, y: Array, u: Array) -> Found:
    from pyod.models.iforest import IForest

    model = IForest(random_state=0).fit(x)
    return Found(model.decision_function(u), model.predict(u) == 1)


def neighbours(x: Array, y: Array, u: Array) -> Found:
    from pyod.models.knn import KNN
    from pyod.utils.utility import standardizer

    labelled, batch = standardizer(x, u)
    model = KNN().fit(labelled)
    return Found(model.decision_function(batch), model.predict(batch) == 1)


def local_outlier_factor(x: Array, y: Array, u: Array) -> Found:
    from pyod.models.lof import LOF
    from pyod.utils.utility import standardizer

    labelled, batch = standardizer(x, u)
    model = LOF().fit(labelled)
    return Found(model.decision_function(batch), model.predict(batch) == 1)


TENTH = Promise("known", 0.1)  # contamination = 0.1, the default

PEERS = (
    Peer("pyod-ecod", "pyod", "pyod", ecod, ("scores", "flags"), TENTH),
    Peer("pyod-iforest", "pyod", "pyod", isolation_forest, ("scores", "flags"), TENTH),
    Peer("pyod-knn", "pyod", "pyod", neighbours, ("scores", "flags"), TENTH),
    Peer("pyod-lof", "pyod", "pyod", local_outlier_factor, ("scores", "flags"), TENTH),
)
