"""A scored batch as a run would leave it, made by hand in a moment: digits 0–4 are known, the batch has all ten."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image
from sklearn.datasets import load_digits

from erd import nets
from erd.base import files
from erd.data import collect
from erd.data.collect import Collected
from erd.data.decode import decode
from erd.data.sources import Images
from erd.review import queue
from erd.runs.folder import RunDir
from erd.runs.results import Decided, Group, Metrics
from erd.settings.schema import Settings
from erd.statistics.metrics import Detection
from erd.statistics.verdict import Verdict
from erd.training.loop import Fit
from erd.training.members import save_net

BATCH = "2026-W46"


def make(
    workspace: Path,
    *,
    images: int = 60,
    flagged: int = 20,
    budget: int = 20,
    inbox: Path | None = None,
    name: str = BATCH,
    classes: list[str] | None = None,
    groups: tuple[int, ...] = (),
    **decided: Any,
) -> RunDir:
    """With an inbox: its originals are there, 32 pixels wide, and the packed pixels are what ingest makes of them.

    `groups`: so many look-alikes in each, from the most novel image on down. `decided`: what of the verdict is other
    than here. The most novel 26 of 60 are of digits that nobody has trained on.
    """
    run = RunDir(workspace / "runs" / name)
    classes = classes or [f"digit {n}" for n in range(5)]
    digits = load_digits()
    pixels, labels = np.rint(digits.images * 15.9).astype(np.uint8), digits.target
    known = np.flatnonzero(labels < 5)[:200]
    shown = np.random.default_rng(0).permutation(len(pixels))[:images]
    ids = np.array([f"ward {row % 3}/scan-{row:03}.png" for row in range(images)])
    batch = pixels[shown]
    if inbox is not None:
        for row, image in zip(ids, batch, strict=True):
            (inbox / row).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).resize((32, 32), Image.Resampling.NEAREST).save(inbox / row)
        batch = np.stack([decode(inbox / row, 8).pixels for row in ids])
    train_ids = np.array([f"train/{i}" for i in known])
    collect.write(
        Collected(
            classes,
            Images(pixels[known], labels[known], train_ids, train_ids),
            np.where(np.arange(len(known)) < 160, 0, 1),
            Images(batch, np.full(images, -1), ids, ids),
            None,
            Images(batch[:0], np.zeros(0, int), ids[:0], ids[:0]),
            np.zeros(0, str),
        ),
        run,
    )
    score = np.where(labels[shown] < 5, 0.2, 0.7) + np.random.default_rng(1).uniform(0, 0.2, images)
    order = np.argsort(-score)
    rank = np.empty(images, int)
    rank[order] = np.arange(images)
    files.save_table(
        run.scores,
        pd.DataFrame(
            {
                "id": ids,
                "score": score.astype(np.float32),
                "p_value": (1 + rank) / (images + 1),
                "flagged": rank < flagged,
                "predicted": np.array(classes)[labels[shown] % 5],
                "wrong_at_most": rank // 4,
            }
        ),
    )
    net = nets.build("mlp", channels=1, image_size=8, classes=len(classes), seed=0)
    save_net(run.pretrained, net, Fit(snapshots=[net.state_dict()], best_epoch=1), {})
    changes = {"data.batch": name, "data.inbox": str(inbox) if inbox else None, "review.audit": 12}
    asked = Settings().override(changes | {"review.budget": budget})
    files.save_json(run.settings, asked.model_dump())
    verdict = Verdict(promised=True, flagged=flagged, wrong_flags_at_most=flagged // 4, fdr_target=0.05,
                      fpr_target=None, catch_target=None, alarm=flagged > 0, alarm_level=0.001,
                      alarm_p=1e-6 if flagged else 0.4,
                      novel_share=0.4, novel_share_storey=0.4, novel_share_low=0.3, novel_share_high=0.5,
                      novel_at_least=15, look_at=min(budget, images))  # fmt: skip
    verdict = replace(verdict, **decided)
    ends = np.cumsum(groups)
    alike = [ids[order[end - count : end]].tolist() for end, count in zip(ends, groups, strict=True)]
    Decided(verdict, [], [Group(len(some), len(some) // 2, classes[0], some) for some in alike]).write(run)
    Metrics(name, "own", Detection(), Detection(), images, verdict, None, 0.9, 3, {"train": 160}).write(run)
    return run


def most_novel(run: RunDir) -> list[int]:
    """Rows, as the page lists them."""
    return pd.read_parquet(run.scores).sort_values("score", ascending=False, kind="stable").index.tolist()


def torn(run: RunDir) -> None:
    """What a crash in the middle of a write leaves."""
    with run.answers.open("ab") as file:
        file.write(b'{"image": "ward 0/scan-0')


def given(run: RunDir) -> list[tuple[str, str, str | None, str]]:
    """(reviewer, image, label or kind, list) as on disk."""
    return [(a.reviewer, a.image, a.label or a.kind, a.list) for a in queue.load(run).answers.current()]


def ids(run: RunDir) -> list[str]:
    return [item["id"] for item in queue.load(run).items("flagged", 0, 60)]
