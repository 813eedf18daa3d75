"""The commands of README and docs, as a reader gives them: page by page, from top to bottom, in a small clone.

Commands stand in fenced blocks; what they print is indented. What cannot be run here is in `ELSEWHERE`, with why.
"""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pictures_of_shapes
import pytest
import servers

from erd.cli import main
from erd.data import library
from erd.integrations import mlflow_record
from erd.review import queue
from erd.runs.answers import Answer, Answers, now
from erd.runs.folder import RunDir

ROOT = Path(__file__).resolve().parent.parent
STORIES = (  # pages that are read one after the other, in one clone
    ("README.md", "docs/tracking.md", "docs/review.md", "docs/versioning.md", "docs/operate.md"),
    ("docs/tutorial.md",),
    ("docs/own-data.md",),
)
INSTALLS, SERVES, LONG = "it installs", "it serves until Ctrl-C: tests/e2e/test_up.py", "it takes hours"
RAY, BACKUP = "tests/training/test_ray.py has it", "tests/integrations/test_backup.py has it"
PIPELINE, MODEL = "tests/e2e/test_pipeline.py has it", "tests/integrations/test_served_model.py has it"
ELSEWHERE = {  # how a command begins, and why it is not run here
    "make run": INSTALLS, "make test": INSTALLS, "make install": INSTALLS, ".venv/bin/pip install": INSTALLS,
    "git clone … erd": "this is the clone", "0 3 * * 1": "a line of cron's",
    "make up": SERVES, "export PREFECT_": SERVES, "prefect ": SERVES,
    "erd bench --scenario own --set 'data.novel=[dog]' #": LONG, "erd bench --scenario fmnist-near": LONG,
    "erd bench --sweep": LONG, "make paper": LONG, "make bench": LONG, "python benchmarks/soak.py": LONG,
    "ray start": RAY, "erd run --batch 2026-W46 --runner ray": RAY, "erd backup": BACKUP, "erd restore": BACKUP,
    "mlflow models serve": MODEL, "curl http://127.0.0.1:5001/invocations": MODEL,
    "dvc repro": PIPELINE, "dvc status": PIPELINE, "dvc metrics": PIPELINE, "dvc plots": PIPELINE, "dvc exp": PIPELINE,
    "dvc remote add -d storage s3:": "there is no bucket", "dvc remote modify": "there is no bucket",
    "dvc pull": "tests/integrations/test_dvc.py has it, in the colleague's clone",
}  # fmt: skip
USAGE = re.compile(r"\[--|…|\| --")  # how a command is called in general, and no call
SHIPPED = ("params.yaml", "prefect.yaml", "dvc.yaml", ".gitignore", ".dvcignore", ".dvc/config", ".dvc/.gitignore",
           "docs/weeks_of_waste.py")  # fmt: skip
# As few images and epochs as a run can do with: values of params.yaml, by their block and name.
TINY: dict[str, dict[str, int | str]] = {
    "data": {"settle": 0, "least": 10}, "model": {"input_size": 64}, "pretrain": {"epochs": 4},
    "finetune": {"epochs": 2, "members": 2}, "review": {"audit": 10}, "run": {"runner": "serial"},
}  # fmt: skip
KINDS = {"cat": "rings", "dog": "stripes", "bird": "blots"}  # and cardboard, which is new
NEW = "cardboard"
AT_LEAST = 30  # images of the list that experts look at, where fewer are flagged


@pytest.mark.parametrize("pages", STORIES, ids=lambda pages: Path(pages[0]).stem)
def test_every_command_of_the_pages_does_its_work(pages: tuple[str, ...], reader: "Reader") -> None:
    for command in (command for page in pages for command in commands(page) if not why_not(command)):
        reader.gives(command)
    assert reader.reviewed == 0 or NEW in reader.classes(), "what experts named is a class"


def test_what_is_not_run_is_still_on_a_page() -> None:
    there = [command for pages in STORIES for page in pages for command in commands(page)]
    for begins in ELSEWHERE:
        assert any(command.startswith(begins) for command in there), f"no page has '{begins}' any more"


def commands(page: str) -> Iterator[str]:
    """Those of fenced blocks without a language, one a line, with their comments."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for line in re.sub(r"\\\n\s*", "", block).splitlines() if not language else ():
            if line.strip() and not (line.startswith("erd ") and USAGE.search(line)):
                yield re.sub(r"\s+#", " #", line)


def why_not(command: str) -> str | None:
    return next((why for begins, why in ELSEWHERE.items() if command.startswith(begins)), None)


class Reader:
    """Somebody with a clone, and pictures, who does what a page says."""

    def __init__(self, clone: Path) -> None:
        self.clone, self.reviewed = clone, 0
        self.truth = {path.read_bytes(): path.parent.name for path in clone.parent.glob("photographs/*/*")}

    def gives(self, command: str) -> None:
        command = self.meant(command)
        words = shlex.split(command, comments=True)
        with contextlib.chdir(self.clone):
            if words[:2] == ["erd", "review"]:
                port = servers.free_port()
                with self.looking(RunDir(Path("runs", words[words.index("--batch") + 1])), port):
                    assert main([*words[1:], "--port", str(port)]) == 0, command
            elif words[0] == "erd" and ">" not in words:  # in this process, which has torch loaded already
                assert main(words[1:]) == 0, command
            else:
                done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
                assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"

    def meant(self, command: str) -> str:
        """With what a reader has in place of names in capitals, of what is large, and of what is on another disk."""
        record = mlflow_record.read(RunDir(self.clone / "runs" / "2026-W46"))
        for said, here in {
            "--batch B ": "--batch 2026-W46 ",
            "RUN_ID": str(record.run_id if record else None),
            "TRASHNET": "../photographs",
            "/mnt/share": str(self.clone.parent / "share"),
            "REPOSITORY && cd REPOSITORY": f"{self.clone} ../colleague",
            "data.batch_known=400 --set data.batch_novel=40": "data.batch_known=30 --set data.batch_novel=10",
        }.items():
            command = command.replace(said, here)
        return command

    @contextlib.contextmanager
    def looking(self, run: RunDir, port: int) -> Iterator[None]:
        """An expert who opens the page of `erd review`, answers what it lists and the audit, and presses Ctrl-C."""
        answers = Answers(run.answers)

        def look() -> None:
            try:
                servers.wait_for_answer(f"http://127.0.0.1:{port}")
                shown = queue.load(run)
                ids = shown.table["id"].to_numpy()
                first = shown.lists["flagged"][: max(shown.cut, AT_LEAST)]
                for name, rows in (("flagged", first), ("audit", shown.lists["audit"])):
                    said = {image: self.truth[Path("inbox", run.batch_name, image).read_bytes()] for image in ids[rows]}
                    answers.merge(Answer(image, "class", label, "ada", name, now()) for image, label in said.items())
            finally:
                os.kill(os.getpid(), signal.SIGINT)

        expert = threading.Thread(target=look)
        expert.start()
        yield
        expert.join()
        assert answers.current(), "somebody has looked"
        self.reviewed += 1

    def classes(self) -> set[str]:
        return set(library.read(self.clone / library.PLACE).table["label"])


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    """With an empty home, a clone with tiny settings, photographs, and folders of some by names of the pages."""
    home, clone, photographs = tmp_path / "home", tmp_path / "erd", tmp_path / "photographs"
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for name, value in {"HOME": str(home), "PATH": programs, "PYTHONPATH": str(ROOT)}.items():
        monkeypatch.setenv(name, value)
    (home / ".config" / "fish" / "completions").mkdir(parents=True)
    (home / ".gitconfig").write_text("[user]\nname = t\nemail = t@t\n")
    for name in SHIPPED:
        _copy(ROOT / name, clone / name)
    _make_tiny(clone / "params.yaml")
    subprocess.run(["bash", "-c", "git init -q && git add -A && git commit -qm all"], cwd=clone, check=True)

    pictures_of_shapes.files(photographs, dict.fromkeys(KINDS.values(), 80) | {"checks": 80})
    for name, kind in (KINDS | {NEW: "checks"}).items():
        (photographs / kind).rename(photographs / name)
        pictures = sorted((photographs / name).iterdir())
        for path in pictures[:40] if name != NEW else ():
            _copy(path, clone / "scans" / name / path.name)
        for path in pictures[40:56]:
            _copy(path, clone / "this-week" / path.name)
    labels = [f"{path.relative_to(clone)},{path.parent.name}" for path in sorted(clone.glob("scans/*/*"))]
    (clone / "labels.csv").write_text("\n".join(["path,label", *labels]))
    return Reader(clone)


def _make_tiny(params: Path) -> None:
    text = params.read_text(encoding="utf-8")
    for block, values in TINY.items():
        for name, value in values.items():
            pattern = rf"(^{block}:.*?^  {name}: )\w+"
            text, found = re.subn(pattern, rf"\g<1>{value}", text, count=1, flags=re.MULTILINE | re.DOTALL)
            assert found == 1, f"{block}.{name}"
    params.write_text(text, encoding="utf-8")


def _copy(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, to)
