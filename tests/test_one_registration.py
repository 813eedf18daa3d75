"""What is added often takes one file, as CONTRIBUTING.md says: each is added to a copy of the package and used.

(A source of images: tests/data/test_new_source.py; a detector: tests/bench/detectors/test_new_detector.py.)
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FAST = ("pretrain.epochs=1", "finetune.epochs=1", "finetune.members=2")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "erd", tmp_path / "erd", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def stages(place: Path, *names: str, settings: tuple[str, ...]) -> list[str]:
    """What `erd stage` prints, by the code in `place`."""
    said = []
    for name in names:
        words = [part for text in (*FAST, *settings) for part in ("--set", text)]
        command = [sys.executable, "-m", "erd.cli", "stage", name, *words, "--json"]
        done = subprocess.run(
            command, cwd=place, env=os.environ | {"PYTHONPATH": str(place)}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        said += json.loads(done.stdout.splitlines()[-1])["files"]
    return said


def test_a_distance_is_a_line_of_one_file(copied: Path) -> None:
    file = copied / "erd" / "statistics" / "disagreement.py"
    line = '    "largest": lambda p, q: (p - q).abs().amax(-1),\n'
    file.write_text(file.read_text().replace('    "l2": lambda', line + '    "l2": lambda'))
    settings = ("score.distance=largest", "run.runner=serial")
    written = stages(copied, "ingest", "pretrain", "finetune", "score", settings=settings)
    assert "runs/digits-near/scores.parquet" in written


def test_a_net_is_one_file(copied: Path) -> None:
    (copied / "erd" / "nets" / "tiny.py").write_text(
        "from torch import nn\nfrom erd.nets.registry import net\nfrom erd.settings import recipes\n"
        '@net("tiny", recipes.MLP)\n'
        "def tiny(channels, image_size, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(channels * image_size**2, classes))\n"
    )
    settings = ("model.net=tiny", "run.runner=serial")
    written = stages(copied, "ingest", "pretrain", "finetune", settings=settings)
    assert sum(path.startswith("runs/digits-near/members/") for path in written) == 4


def test_a_runner_is_one_file(copied: Path) -> None:
    (copied / "erd" / "training" / "runners" / "noted.py").write_text(
        "from pathlib import Path\nfrom erd.training.runners import serial\n"
        "class Runner(serial.Runner):\n"
        "    def submit(self, function, *arguments):\n"
        '        with Path("noted.txt").open("a") as file:\n'
        '            file.write(function.__name__ + "\\n")\n'
        "        return super().submit(function, *arguments)\n"
    )
    stages(copied, "ingest", "pretrain", "finetune", settings=("run.runner=noted",))
    assert (copied / "noted.txt").read_text() == "finetune\n" * 2


def test_a_stage_is_one_file_and_a_line_of_the_chain(copied: Path) -> None:
    (copied / "erd" / "weekly" / "stages" / "count.py").write_text(
        "from erd.base import files\nfrom erd.runs.results import Ingested\nfrom erd.runs.stage_records import Done\n"
        "from erd.weekly.stages.base import Stage, one\n"
        "def count(settings, run):\n"
        '    files.save_json(run.root / "count.json", sum(Ingested.read(run).sizes.values()))\n'
        '    return Done("count", (run.root / "count.json",))\n'
        'STAGE = Stage("count", "how many images there are", ("data",), lambda run: [run.ingested],\n'
        '              lambda run: [run.root / "count.json"], one(count))\n'
    )
    chain = copied / "erd" / "weekly" / "chain.py"
    text = chain.read_text().replace("import encode, evaluate", "import count, encode, evaluate")
    chain.write_text(text.replace("ingest.STAGE, ", "ingest.STAGE, count.STAGE, "))
    assert stages(copied, "ingest", "count", settings=())[-1] == "runs/digits-near/count.json"
    command = [sys.executable, "-m", "erd.integrations.dvc_pipeline"]
    made = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(copied)}, cwd=copied, capture_output=True, text=True
    )
    assert "erd} stage count" in made.stdout, "and the pipeline has it"
