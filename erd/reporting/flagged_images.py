"""The flagged images of a batch as files a person can open: PNG, most novel first, and a table."""

import shutil
from pathlib import Path

from PIL import Image

from erd.base import files
from erd.data import packed
from erd.reporting import report
from erd.runs.folder import RunDir


def flagged(run: RunDir) -> Path:
    """runs/<batch>/flagged/: 0001.png, 0002.png, … and flagged.csv, which says what each is. Made anew each time."""
    chosen, images = report.flagged(run), packed.read(run.batch).images
    folder, draft = run.root / "flagged", run.root / ".flagged"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    names = [f"{number:04}.png" for number in range(1, len(chosen) + 1)]
    for row, name in zip(chosen.index, names, strict=True):
        Image.fromarray(images[row].squeeze().numpy()).save(draft / name)
    listing = chosen[["id", "score", "p_value", "predicted", "wrong_at_most"]]
    with files.replacing(draft / "flagged.csv") as path:
        listing.assign(file=names).to_csv(path, index=False)
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)
    return folder
