"""fcnd, by its authors (Lee, Popov & Ren): flags at a false discovery rate, with the one-class SVM that it brings."""

from peer import Array, Found, Peer, Promise


def full_conformal(x: Array, y: Array, u: Array) -> Found:
    from fcnd import FCND, OneClassSVMLearner
    from sklearn.preprocessing import StandardScaler

    scale = StandardScaler().fit(x)
    found = FCND(OneClassSVMLearner()).detect(scale.transform(x), scale.transform(u), alpha=0.05)
    return Found(found.scores[len(x) :], found.rejection_mask)


def split_conformal(x: Array, y: Array, u: Array) -> Found:
    from fcnd import SCND, OneClassSVMLearner
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    train, held_out = train_test_split(x, test_size=0.5, random_state=0)
    parts = [StandardScaler().fit(train).transform(part) for part in (train, held_out, u)]
    found = SCND(OneClassSVMLearner()).detect(*parts, alpha=0.05, method="bh")
    return Found(found.scores[len(held_out) :], found.rejection_mask)


FDR = Promise("flagged", 0.05)

PEERS = (
    Peer("fcnd-full", "fcnd", "fcnd", full_conformal, ("scores", "flags"), FDR),
    Peer("fcnd-split", "fcnd", "fcnd", split_conformal, ("scores", "flags"), FDR),
)
