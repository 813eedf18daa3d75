"""dvc.yaml, written from the chain of stages: the same commands, files and settings, and the code that each stage is.

    python -m erd.integrations.dvc_pipeline > dvc.yaml        # as `make dvc.yaml` does

A test compares the file with what this makes. The folders of code are dependencies: when one changes `dvc repro` calls
the stage, whose own record then tells, module by module, whether it is concerned.
"""

from pathlib import Path

import yaml

from erd.base import code_digest
from erd.runs.folder import RunDir
from erd.weekly.chain import CHAIN
from erd.weekly.stages.base import Stage

HEAD = """\
# The chain of `erd run` as stages, for `dvc repro` and `dvc exp run -S finetune.members=2`: see docs/versioning.md.
# The same commands, the same files, the same bytes. All knobs are in params.yaml. Written by `make dvc.yaml`.

vars:
  - erd: PATH=.venv/bin:$PATH erd   # also where only `.venv/bin/dvc` is called and no environment is active

stages:
"""
PLOTS = """
plots:           # `dvc plots show`, `dvc plots diff`
  - runs/${data.batch}/plots/roc.json:
      title: ROC of the batch
      x: false_positive
      x_label: known images flagged wrongly
      y: caught
      y_label: novel images caught
  - runs/${data.batch}/plots/looks.json:
      title: Novel images found, highest scores first
      x: looks
      x_label: images looked at
      y: [found, precision]
      y_label: share of the novel found, share novel of those looked at
  - runs/${data.batch}/plots/scores.json:
      title: Score histogram
      x: score
      x_label: score (larger = more novel)
      y: [known, novel, all, calibration]
      y_label: share of the images
  - runs/${data.batch}/plots/learning_curves.json:
      title: Learning curves, mean of the members
      x: epoch
      y: [train_accuracy, val_accuracy, batch_novel_accuracy, batch_known_accuracy, batch_accuracy]
      y_label: accuracy
  - runs/${data.batch}/figures
"""


def pipeline(code: Path = Path("erd")) -> str:
    """The text of dvc.yaml; `code` is where the package lies, seen from the workspace."""
    return HEAD + "\n".join(_stage(stage, code) for stage in CHAIN) + PLOTS


def _stage(stage: Stage, code: Path) -> str:
    run = RunDir(Path("runs/${data.batch}"))
    deps = [*(path.as_posix() for path in stage.reads(run)), *_folders(stage, code)]
    body: dict[str, object] = {"cmd": f"${{erd}} stage {stage.name}", "params": list(stage.settings), "deps": deps}
    writes = [path for path in stage.writes(run) if path != run.metrics]
    # Not removed before the stage runs: its own record tells what of them is still good.
    body["outs"] = [{path.as_posix(): {"persist": True}} for path in writes]
    if run.metrics in stage.writes(run):
        body["metrics"] = [{run.metrics.as_posix(): {"cache": False}}]
    text = yaml.safe_dump({stage.name: body}, sort_keys=False, allow_unicode=True, width=200)
    first, _, rest = text.partition("\n")
    lines = [f"{first.ljust(14)} # {stage.about}", *rest.splitlines()]
    return "".join(f"  {line}\n" for line in lines)


def _folders(stage: Stage, code: Path) -> list[str]:
    """The folders of the package that a stage's code lies in."""
    folders = {name.split(".")[1] for name in code_digest.of(stage.module) if name.count(".") > 1}
    return sorted((code / folder).as_posix() for folder in folders)


if __name__ == "__main__":
    print(pipeline(), end="")
