"""One peer, or ours, in a process of its own, so that its seconds and its memory are nobody else's.

    python benchmarks/peer_alone.py NAME FOLDER

benchmarks/peers.py starts it. FOLDER has x.npy, y.npy and u.npy (benchmarks/peer.py), or for ours settings.json and the
run's folder in run.txt; what was found is left in found.npz, and the largest memory in peak.txt where the system tells.
"""

import os
import sys
from pathlib import Path

import numpy as np
import peers_cases
from peer import OURS, Found

from erd.base.processes import end_with

NEED_TORCHVISION = ("anomalib", "pytorch_ood")
STATUS = Path("/proc/self/status")  # Linux


def main(name: str, folder: Path) -> None:
    found = ours(folder) if name == OURS else theirs(name, folder)
    np.savez(folder / "found.npz", **{key: value for key, value in found._asdict().items() if value is not None})
    # Not getrusage: its maximum begins with the size of the process that started this one.
    if STATUS.exists():
        (folder / "peak.txt").write_text(STATUS.read_text().split("VmHWM:")[1].split()[0] + "\n")


def theirs(name: str, folder: Path) -> Found:
    peer = peers_cases.found()[name]
    if peer.module in NEED_TORCHVISION:
        import erd.base.torchvision  # noqa: F401 - so that torchvision loads whatever torch it was built for
    x, y, u = (np.load(folder / f"{part}.npy", allow_pickle=False) for part in "xyu")
    return peer.find(x, y, u)


def ours(folder: Path) -> Found:
    """From features to flags: what `erd run` does between encode and evaluate."""
    from erd.base import files
    from erd.runs.folder import RunDir
    from erd.runs.results import Decided
    from erd.settings.schema import Settings
    from erd.weekly import chain

    settings = Settings.model_validate_json((folder / "settings.json").read_text(encoding="utf-8"))
    run = RunDir(Path((folder / "run.txt").read_text(encoding="utf-8")))
    for stage in chain.up_to("score"):
        if stage.name not in ("ingest", "encode"):
            chain.run(stage, settings, run)
    table, verdict = files.load_table(run.scores), Decided.read(run).verdict
    return Found(table["score"].to_numpy(), table["flagged"].to_numpy(), verdict.alarm_p, verdict.alarm_level)


if __name__ == "__main__":
    end_with(os.getppid())
    main(sys.argv[1], Path(sys.argv[2]))
