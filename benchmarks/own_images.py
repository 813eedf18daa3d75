"""A user's own files with the defaults: each of the larger classes is played as novel in turn, at several shares.

    python benchmarks/own_images.py --labeled DIR --json
    python benchmarks/own_images.py --labeled DIR --share 0.1 --seeds 5 --set model.net=head-mlp

DIR holds a folder a class. Figures are means over classes and seeds, with the spread over the seeds' means: AUROC,
TNR@95 and the share of novel images among the first n (n = the novel ones, at most 50), of the score and of what it is
made of; power and realised FDR of the flags; and the limit: a linear layer that is told which images of the batch are
novel, on the same features, scored on the half of the batch it was not told of.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from erd.base import files
from erd.data import library, packed
from erd.runs.configure import settings_for
from erd.runs.folder import RunDir
from erd.settings.schema import Settings
from erd.statistics import metrics
from erd.weekly import chain

SHARES = (0.5, 0.1, 0.03)
CLASSES = 5  # the largest ones, of which there are enough to be half of a batch
KNOWN = 400  # known images in a batch; as many as there are novel ones where those are half of it
SCORES = ("score", "disagreement", "neighbours", "max_softmax")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labeled", metavar="DIR", required=True, help="a folder a class")
    parser.add_argument("--share", action="append", type=float, help=f"of novel images; repeatable; default {SHARES}")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--keep", metavar="DIR", help="where features are kept for the next time")
    parser.add_argument("--json", action="store_true", help="only the JSON object")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(arguments.keep or scratch)
        data = settings_for(scenario="own", overrides=arguments.set).data
        library.take_in(Path(arguments.labeled), data.image_size, place / "library", largest=data.largest or 0)
        counts = library.read(place / "library").table["label"].value_counts()
        for share in arguments.share or SHARES:
            found = []
            for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
                for novel in counts.index[:CLASSES]:
                    settings = asked(place, str(novel), int(counts[novel]), share, seed, arguments.set)
                    found.append(one(settings, RunDir(place / "runs" / "run")) | {"novel": novel, "seed": seed})
                    if not arguments.json:
                        print(json.dumps({"share": share, **found[-1]}), flush=True)
            rows.append({"share": share, "classes": min(CLASSES, len(counts)), "seeds": arguments.seeds, **mean(found)})
    print(json.dumps({"set": arguments.set, "rows": rows}))


def asked(place: Path, novel: str, there: int, share: float, seed: int, overrides: list[str]) -> Settings:
    """As many known images as can be matched: a class has only so many."""
    known = min(KNOWN, int(there * (1 - share) / share * 0.6))
    said = [
        f"seed={seed}",
        f"data.path={place / 'library'}",
        f"data.novel=[{json.dumps(novel)}]",
        f"data.batch_known={known}",
        f"data.batch_novel={round(known * share / (1 - share))}",
        "data.holdout_known=0",
        "data.holdout_novel=0",
    ]
    return settings_for(scenario="own", overrides=[*said, *overrides])


def one(settings: Settings, run: RunDir) -> dict[str, Any]:
    if run.root.exists():
        run.move_away()
    for stage in chain.up_to("score"):
        chain.run(stage, settings, run)
    table = files.load_table(run.scores)
    novel = (table["truth"] == "novel").to_numpy()
    found: dict[str, Any] = {}
    for name in SCORES:
        if name in table:
            scores = table[name].to_numpy()
            first = np.argsort(-scores, kind="stable")[: min(50, int(novel.sum()))]
            found[f"{name}_auroc"] = metrics.auroc(scores[~novel], scores[novel])
            found[f"{name}_tnr95"] = metrics.tnr_at_tpr(scores[~novel], scores[novel])
            found[f"{name}_first"] = float(novel[first].mean())
    flagged = table["flagged"].to_numpy()
    found["power"] = float(flagged[novel].mean())
    found["fdp"] = float((~novel)[flagged].mean()) if flagged.any() else 0.0
    if settings.encoder:
        found["limit_auroc"] = limit(settings, run, novel)
    return found


def limit(settings: Settings, run: RunDir, novel: np.ndarray) -> float:
    """Told the truth of half of the batch: S and its known images against its novel ones, on the same features."""
    from sklearn.linear_model import LogisticRegression

    labeled, batch = (packed.read(run.seen(path, settings)) for path in (run.labeled, run.batch))
    train, asked_for = (rows.every().flatten(1).float().numpy() for rows in (labeled.rows("train"), batch.rows()))
    mean, std = train.mean(0), train.std(0) + 1e-6
    train, asked_for = (train - mean) / std, (asked_for - mean) / std
    scores = np.empty(len(novel))
    half = np.random.default_rng(0).permutation(len(novel)) % 2 == 0
    for told in (half, ~half):
        head = LogisticRegression(C=1e-3, max_iter=500, class_weight="balanced")
        head.fit(np.concatenate([train, asked_for[told]]), np.concatenate([np.zeros(len(train)), novel[told]]))
        scores[~told] = head.decision_function(asked_for[~told])
    return float(np.mean([metrics.auroc(scores[part & ~novel], scores[part & novel]) for part in (half, ~half)]))


def mean(found: list[dict[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name in (key for key in found[0] if key not in ("novel", "seed")):
        by_seed = [
            statistics.mean(each[name] for each in found if each["seed"] == seed)
            for seed in sorted({each["seed"] for each in found})
        ]
        spread = statistics.stdev(by_seed) if len(by_seed) > 1 else 0.0
        row[name] = {"mean": round(statistics.mean(by_seed), 4), "std": round(spread, 4)}
    return row


if __name__ == "__main__":
    main()
