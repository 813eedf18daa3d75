"""anomalib: those of its models that take the features of a net. The others fetch weights of their own from a hub."""

from peer import Array, Found, Peer


def kernel_density(x: Array, y: Array, u: Array) -> Found:
    """DFKDE."""
    import torch
    from anomalib.models.components.classification import KDEClassifier

    model = KDEClassifier()
    model.fit(torch.from_numpy(x))
    return Found(model.compute_kde_scores(torch.from_numpy(u), as_log_likelihood=True).neg().numpy())


def feature_modelling(x: Array, y: Array, u: Array) -> Found:
    """DFM: how much of an image's features is lost in the directions that hold 97% of the labelled ones' variance."""
    import torch
    from anomalib.models.components import PCA

    labelled, batch = torch.from_numpy(x), torch.from_numpy(u)
    pca = PCA(n_components=0.97)
    pca.fit(labelled)
    kept = pca.inverse_transform(pca.transform(batch))  # which also takes the mean off `batch`, in place
    return Found((batch - kept).square().sum(1).numpy())


PEERS = (
    Peer("anomalib-dfkde", "anomalib", "anomalib", kernel_density, ("scores",)),
    Peer("anomalib-dfm", "anomalib", "anomalib", feature_modelling, ("scores",)),
)
