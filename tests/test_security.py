"""What docs/security.md promises of files: none runs code, versions are exact, weights are the ones that were made."""

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from erd.base import files
from erd.base.errors import RunError
from erd.data import packed
from erd.review import app, queue
from erd.runs import configure
from erd.runs.folder import RunDir
from erd.weekly.scorer import Facts, Scorer

ROOT = Path(__file__).parents[1]
CODE = sorted(path for folder in ("erd", "flows", "benchmarks") for path in (ROOT / folder).rglob("*.py"))
# What can run code that a file holds.
UNPICKLERS = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "jsonpickle"}
RUNS_CODE = {"eval", "exec", "compile", "__import__"}
SAFE = {  # a reader that takes code unless it is told not to → what tells it
    ("torch", "load"): ("weights_only", True),
    ("np", "load"): ("allow_pickle", False),
    ("numpy", "load"): ("allow_pickle", False),
}
NEVER = {("pd", "read_pickle"), ("pandas", "read_pickle"), ("yaml", "unsafe_load"), ("yaml", "full_load"),
         ("yaml", "load_all"), ("torch", "hub"), ("pyfunc", "load_model"), ("torch", "jit")}  # fmt: skip
LOADERS = {"_Loader"}  # for yaml.load: subclasses of its SafeLoader
# Between processes of one run and Ray's own on the nodes, as a pool of processes does it; never from a file.
MESSAGES = {"erd/training/ray_driver.py", "erd/training/runners/ray.py"}


def unsafe(tree: ast.AST) -> Iterator[str]:
    """What in a module could run code that a file holds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            named = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            yield from (name for name in named if name.partition(".")[0] in UNPICKLERS)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            yield from [f"{owner}.{node.attr}"] * ((owner, node.attr) in NEVER)
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in RUNS_CODE:
            yield node.func.id
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            place = node.func.value.id, node.func.attr
            given = {word.arg: word.value.value for word in node.keywords if isinstance(word.value, ast.Constant)}
            if place in SAFE and (SAFE[place][0], SAFE[place][1]) not in given.items():
                yield ".".join(place)
            if place == ("yaml", "load"):
                used = [*node.args[1:], *(word.value for word in node.keywords if word.arg == "Loader")]
                if not used or not all(isinstance(one, ast.Name) and one.id in LOADERS for one in used):
                    yield "yaml.load"


@pytest.mark.parametrize("path", CODE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_module_runs_code_that_a_file_may_hold(path: Path) -> None:
    found = set(unsafe(ast.parse(path.read_text(encoding="utf-8"))))
    assert found <= ({"pickle"} if path.relative_to(ROOT).as_posix() in MESSAGES else set())


@pytest.mark.parametrize(
    "line",
    ["import pickle", "from joblib import load", "torch.load(x)", "torch.load(x, weights_only=False)", "np.load(x)",
     "np.load(x, allow_pickle=True)", "pd.read_pickle(x)", "eval(x)", "yaml.load(x)", "yaml.load(x, yaml.Loader)",
     "mlflow.pyfunc.load_model(x)", "torch.hub.load(x)"],
)  # fmt: skip
def test_the_search_finds_what_would_run_code(line: str) -> None:
    assert list(unsafe(ast.parse(line)))


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_installed_package_has_exactly_the_version_that_was_tested() -> None:
    """What is audited is what runs."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    assert all(re.fullmatch(r"[\w.+!-]+", version) for version in pinned.values()), "exact, no range"
    wanted = {plain(name): version for name, version in pinned.items()}
    tools = {"erd", "pip", "setuptools", "wheel"}  # ourselves, and what installs
    there = {plain(found.metadata["Name"]): found.version for found in metadata.distributions()}
    assert not {f"{name}=={version}" for name, version in there.items()
                if name not in tools and wanted.get(name) != version.partition("+")[0]}  # fmt: skip


def test_what_is_installed_fits_together() -> None:
    said = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True)
    assert said.returncode == 0, said.stdout


TESTED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def test_every_promise_of_the_page_has_a_test_that_is_there() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    promised = page.partition("## Promised")[2].partition("## Not promised")[0]
    rows = [line for line in promised.splitlines() if line.startswith("| ") and not line.startswith("| what")]
    assert len(rows) > 10
    for row in rows:
        assert TESTED.search(row), f"no test: {row}"
    for file, name in TESTED.findall(page):
        assert f"def {name}" in (ROOT / file).read_text(encoding="utf-8"), f"{file} has no {name}"


@pytest.fixture
def run(digits_run: RunDir, tmp_path: Path) -> RunDir:
    return RunDir(Path(shutil.copytree(digits_run.root, tmp_path / "runs" / "week")))


def changed(path: Path) -> None:
    """One bit of the last weight."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_a_net_that_is_not_the_one_that_was_trained_scores_nothing(run: RunDir) -> None:
    images = packed.read(run.batch).images[:2].numpy()
    assert len(Scorer.of_run(run).score(images)) == 2
    member = next(run.members.glob("[0-9]*.safetensors"))
    changed(member)
    with pytest.raises(RunError, match=rf"{member.name} is not as the run wrote it: its hash is another; run the"):
        Scorer.of_run(run)


def test_the_review_page_shows_nothing_by_another_net_and_works_without(run: RunDir) -> None:
    changed(run.pretrained)
    application = app.make(queue.load(run), 8600)
    application.state.prepare()
    page = TestClient(application, base_url="http://127.0.0.1:8600")
    assert page.get("/api/list/flagged").status_code == 200
    assert "is not as the run wrote it" in page.get("/api/map").json()["failed"]


def test_a_registered_model_takes_only_the_files_it_was_registered_with(run: RunDir) -> None:
    given = {"classifier": run.pretrained, "reference": run.clean_scores}
    of_run = Facts.of(configure.read(run), run).as_json()
    facts = Facts(**of_run | {"hashes": {name: files.sha256(path) for name, path in given.items()}})
    facts.check(given)
    changed(run.pretrained)
    with pytest.raises(RunError, match="the model's file 'classifier' is not the one that was registered"):
        facts.check(given)
    changed(run.pretrained)  # back
    with pytest.raises(RunError, match="'reference' is not the one"):
        facts.check({"classifier": run.pretrained})
