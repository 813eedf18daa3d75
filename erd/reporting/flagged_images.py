"""The images of a batch that experts should see, as files a person can open: PNG, most novel first, and a table."""

import shutil
from pathlib import Path

from PIL import Image

from erd.base import spreadsheets
from erd.data import packed
from erd.reporting import tiers
from erd.runs.folder import RunDir


def export(run: RunDir) -> Path:
    """runs/<batch>/flagged/: 0001.png, 0002.png, … and flagged.csv, which says what each is. Made anew each time.

    The flagged images; where nothing is flagged those that are worth a look, and the column `flagged` says so.
    """
    chosen, images = tiers.flagged(run), packed.read(run.batch).images
    if chosen.empty:
        chosen = tiers.worth_a_look(run)
    folder, draft = run.root / "flagged", run.root / ".flagged"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    names = [f"{number:04}.png" for number in range(1, len(chosen) + 1)]
    for row, name in zip(chosen.index, names, strict=True):
        Image.fromarray(images[row].squeeze().numpy()).save(draft / name)
    listing = tiers.readable(chosen)[["id", "score", "p_value", "flagged", "predicted", "wrong_at_most"]]
    spreadsheets.save(draft / "flagged.csv", listing.assign(file=names))
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)
    return folder
