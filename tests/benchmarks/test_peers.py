"""benchmarks/peers.py: peers get what a user has and no more, and what is told of them is what they did."""

import ast
import json
import re
import signal
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import peers
import peers_cases
import peers_page
import pytest
import torch
from peer import OURS, Found, Peer, Promise, lines_of
from peers_cases import conformal, scikit_learn

from erd.base import torchvision  # noqa: F401 - before pytorch-ood, as benchmarks/peer_alone.py does
from erd.data import packed
from erd.runs.folder import RunDir

ROOT = Path(__file__).parents[2]
PEERS = peers_cases.found()
IN_DEV = [peer for peer in PEERS.values() if peer.package in ("scikit-learn", "scipy", "pytorch-ood")]


def images(known: int, novel: int, seed: int, classes: int = 3, width: int = 160) -> tuple[np.ndarray, np.ndarray]:
    """Features with a centre for each class, and one for what is novel; and their classes, -1 for that."""
    rng = np.random.default_rng(seed)
    kinds = np.concatenate([rng.integers(classes, size=known), np.full(novel, -1)])
    centres = np.random.default_rng(1).normal(size=(classes + 1, width)) * 0.5
    return (centres[kinds] + rng.normal(size=(len(kinds), width))).astype(np.float32), kinds


@pytest.mark.parametrize("peer", IN_DEV, ids=lambda peer: peer.name)
def test_a_peer_gives_what_it_says_and_finds_what_is_plain_to_see(peer: Peer) -> None:
    (x, y), (u, kinds) = images(600, 0, seed=2), images(160, 40, seed=3)
    found = peer.find(x, y, u)
    assert {"scores": found.scores is not None, "flags": found.flags is not None, "p": found.p is not None} == {
        part: part in peer.gives for part in ("scores", "flags", "p")
    }
    if found.scores is not None:
        assert peers.figures(found, kinds < 0)["auroc"] > 0.65
    if found.p is not None:
        assert found.p < 0.01
        quiet, _ = images(200, 0, seed=4)
        assert (peer.find(x, y, quiet).p or 0) > 0.05


@pytest.mark.parametrize("find", [conformal.split_conformal, conformal.ada_detect])
def test_flags_at_a_rate_keep_it_where_nothing_is_novel(find: Any) -> None:
    """Any flag is then a false one: in at most 5% of batches. More than nine of sixty are one chance in a thousand."""
    wrong = 0
    for seed in range(60):
        x, y = images(300, 0, seed=1_000 + seed, width=20)
        u, _ = images(60, 0, seed=2_000 + seed, width=20)
        wrong += bool(find(x, y, u).flags.any())
    assert wrong <= 9


def test_lines_are_those_with_code_and_those_of_helpers_count() -> None:
    def find(x: np.ndarray, y: np.ndarray, u: np.ndarray) -> Found:
        """Not a line."""
        scores = helper(
            u,
        )
        # nor this

        return Found(scores)  # this is one

    def helper(u: np.ndarray) -> np.ndarray:
        return u.sum(1)

    assert (lines_of(find), lines_of(helper)) == (4, 1)
    assert Peer("a", "b", "c", find, ("scores",), helpers=(helper,)).lines == 5


def test_a_file_of_the_cases_is_found_and_the_extra_installs_what_it_needs() -> None:
    names = [name for path in Path(peers_cases.__path__[0]).glob("[!_]*.py")
             for name in re.findall(r'Peer\("([\w-]+)"', path.read_text())]  # fmt: skip
    assert sorted(names) == sorted(PEERS)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["peers"]]
    assert {peer.package for peer in PEERS.values()} <= {re.split("[<>=]", one)[0] for one in wanted}


def test_cases_import_what_is_heavy_only_where_it_is_used() -> None:
    """Else the seconds of one peer would be those of another's package, and a missing one would stop all."""
    for path in Path(peers_cases.__path__[0]).glob("[!_]*.py"):
        imported = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]
        modules = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imported}
        assert modules <= {"peer", "typing"}, path.name


def test_a_peer_whose_package_is_missing_is_left_out_with_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = Peer("other", "other-package", "no_such_module", scikit_learn.isolation_forest, ("scores",))
    monkeypatch.setattr(peers_cases, "found", lambda: PEERS | {"other": missing})
    names, words = peers.there([OURS, "other", "sklearn-lof"])
    assert names == [OURS, "sklearn-lof"]
    assert words == ["other is left out: other-package is not installed"]


@pytest.mark.parametrize("name", [name for name in peers.SETS if name != "digits"])
def test_a_batch_has_as_many_novel_images_as_asked_and_another_new_class_each_time(name: str, tmp_path: Path) -> None:
    size = peers.SETS[name].batch
    found = [peers.settings_of(name, share, seed, tmp_path) for share in (50, 3, 0) for seed in (500, 501)]
    counts = [(one.data.batch_novel, one.data.batch_known) for one in found[::2]]
    assert counts == [(size // 2, size // 2), (3 * size // 100, 97 * size // 100), (0, size)]
    assert all(one.encoder and one.detect.calibration == "mixed" and one.detect.fdr == 0.05 for one in found)
    new = [(one.data.scenario, one.data.novel) for one in found[:2]]
    assert (new[0] != new[1]) == bool(peers.SETS[name].new)


def test_batches_without_novelty_are_more_and_come_with_the_seeds_of_the_others() -> None:
    assert peers.seeds((10, 0), 2) == [(500, (10, 0)), (501, (10, 0)), (502, (0,)), (503, (0,))]
    assert peers.seeds((10,), 2) == [(500, (10,)), (501, (10,))]


def test_peers_get_all_labelled_images_in_random_order_and_the_batch_and_no_truth(tmp_path: Path) -> None:
    settings, run, given = peers.settings_of("digits", 10, 503, tmp_path), RunDir(tmp_path / "run"), tmp_path / "given"
    novel = peers.prepared(settings, run, given)
    x, y, u = (np.load(given / f"{part}.npy") for part in "xyu")
    assert sorted(path.name for path in given.iterdir()) == ["run.txt", "settings.json", "u.npy", "x.npy", "y.npy"]
    labeled = packed.read(run.labeled)
    assert labeled.labels is not None
    rows, labels = labeled.rows().every().flatten(1).float().numpy(), labeled.labels.numpy()
    assert not np.array_equal(x, rows)
    assert sorted(map(tuple, np.c_[x, y])) == sorted(map(tuple, np.c_[rows, labels]))
    torch.testing.assert_close(torch.from_numpy(u), packed.read(run.batch).rows().every().flatten(1).float())
    assert (novel.sum(), len(novel)) == (30, 300)
    assert len({tuple(row) for row in u} & {tuple(row) for row in x}) < 5  # but for digits that are there twice


def test_figures_are_of_the_answer() -> None:
    novel = np.array([True, True, False, False])
    found = Found(np.array([4.0, 2.0, 3.0, 1.0]), np.array([True, False, True, False]), 0.04, 0.001)
    row = peers.figures(found, novel)
    assert row == {"auroc": 0.75, "p50": 0.5, "fdp": 0.5, "power": 0.5, "known_flagged": 0.5, "any_flag": True,
                   "rings": True, "rings_weekly": False}  # fmt: skip
    quiet = peers.figures(Found(flags=np.zeros(4, bool)), np.zeros(4, bool))
    assert quiet == {"fdp": 0.0, "power": None, "known_flagged": 0.0, "any_flag": False}
    with pytest.raises(ValueError, match="no numbers"):
        peers.figures(Found(np.array([1.0, np.nan, 2.0, 3.0])), novel)


def test_a_peer_that_fails_is_told_with_its_reason(tmp_path: Path) -> None:
    row = peers.asked_alone("sklearn-lof", tmp_path, np.ones(3, bool))
    assert list(row) == ["failed"]
    assert "x.npy" in row["failed"]


def test_a_peer_that_somebody_ended_has_not_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(*arguments: Any, **more: Any) -> None:
        raise subprocess.CalledProcessError(-signal.SIGTERM, "python", stderr="")

    monkeypatch.setattr(subprocess, "run", ended)
    with pytest.raises(subprocess.CalledProcessError):
        peers.asked_alone("sklearn-lof", tmp_path, np.ones(3, bool))


def test_the_whole_command_on_digits_and_what_is_kept_is_not_done_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, keep = tmp_path / "page.md", tmp_path / "keep"
    page.write_text("before\n<!-- peers:begin -->\nold\n<!-- peers:end -->\nafter\n")
    command = ["--set-name", "digits", "--share", "10", "--repetitions", "1", "--keep", str(keep), "--output",
               str(page), "--json"]  # fmt: skip
    for method in (OURS, "sklearn-lof", "classifier-test"):
        command += ["--method", method]
    peers.main(command)
    told = {row["method"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert list(told) == [OURS, "sklearn-lof", "classifier-test"]
    assert told[OURS]["auroc"] > 0.9
    assert 0 < told["sklearn-lof"]["auroc"] < 1
    assert "auroc" not in told["classifier-test"]
    assert all(row["seconds"] > 0.1 and row["megabytes"] > 30 for row in told.values())
    head, text, tail = page.read_text().replace("-->", "<!--").split("<!--")[0::2]
    assert (head, tail) == ("before\n", "\nafter\n")
    assert "| `sklearn-lof` | nothing |" in text
    assert not list(keep.glob("given/*"))
    kept = keep / "digits-10-500-sklearn-lof.json"
    kept.write_text(json.dumps(json.loads(kept.read_text()) | {"auroc": 0.123}))
    peers.main(command)
    again = {row["method"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert again["sklearn-lof"]["auroc"] == 0.123
    assert again[OURS] == told[OURS]


# The page -------------------------------------------------------------------------------------------------------------


def measured(method: str, seed: int, share: int = 10, **more: Any) -> dict[str, Any]:
    return {"set": "waste", "share": share, "seed": seed, "method": method, "seconds": 1.0, "megabytes": 100} | more


def ours(seed: int, **more: Any) -> dict[str, Any]:
    return measured(OURS, seed, **{"auroc": 0.9, "p50": 0.5, "fdp": 0.0, "power": 0.2, "any_flag": True, "seconds": 9.0,
                                   "megabytes": 900, "rings": True, "rings_weekly": False} | more)  # fmt: skip


def test_a_peer_is_better_if_it_is_ahead_seed_by_seed_and_clearly_if_beyond_chance() -> None:
    rows = [ours(seed, auroc=0.90 + seed / 100) for seed in range(4)]
    rows += [measured("ood-rmd", seed, auroc=0.91 + seed / 100 + seed % 2 / 1000) for seed in range(4)]
    rows += [measured("ood-knn", seed, auroc=0.80 + 0.12 * seed) for seed in range(4)]  # by chance
    rows += [measured("ood-vim", seed, auroc=0.88 + seed / 100) for seed in range(4)]
    found = peers_page.better(peers_page.Table(rows), "auroc", "waste", 10, 3)
    assert [(one.method, one.clearly) for one in found] == [("ood-knn", False), ("ood-rmd", True)]
    assert "ood-knn" in peers_page.text(rows)


def test_more_flags_are_no_better_where_too_many_of_them_are_wrong_or_nothing_is_promised() -> None:
    rows = [ours(seed) for seed in range(4)]
    for method, fdp in (("adadetect", 0.3), ("conformal-lof", 0.02), ("sklearn-lof", 0.01)):
        rows += [measured(method, seed, fdp=fdp, power=0.6, any_flag=True, auroc=0.5) for seed in range(4)]
    found = peers_page.better(peers_page.Table(rows), "power", "waste", 10, 2)
    assert [one.method for one in found] == ["conformal-lof"]
    table = peers_page.flags(peers_page.Table(rows), "waste").splitlines()
    line = {name: next(one for one in table if f"`{name}`" in one) for name in ("adadetect", "conformal-lof")}
    assert "| 30% / .60 |" in line["adadetect"]
    assert "| 2% / **.60** |" in line["conformal-lof"]


def test_a_test_that_rings_for_nothing_is_no_better_alarm() -> None:
    rows = [ours(seed, rings=False) for seed in range(5)] + [ours(seed, share=0, auroc=None) for seed in range(5)]
    for method, without in (("torchdrift-ks", True), ("torchdrift-mmd", False)):
        rows += [measured(method, seed, rings=True) for seed in range(5)]
        rows += [measured(method, seed, share=0, rings=without) for seed in range(5)]
    table = peers_page.Table(rows)
    assert [one.method for one in peers_page.better(table, "rings", "waste", 10, 2)] == ["torchdrift-mmd"]
    lines = peers_page.alarms(table).splitlines()
    assert "| `torchdrift-ks`, at 5% | 100 / 100% |" in lines
    assert "| **erd**, at the level of a weekly run | 0 / 0% |" in lines


def test_the_page_has_the_spread_the_best_in_bold_the_costs_and_who_failed() -> None:
    rows = [ours(seed, auroc=0.9 + seed / 10) for seed in range(2)]
    rows += [measured("ood-rmd", seed, auroc=0.5, p50=0.5, seconds=3.0) for seed in range(2)]
    rows += [{"set": "waste", "share": 10, "seed": 0, "method": "ood-vim", "failed": "out of breath"}]
    text = peers_page.text(rows, ["fcnd-full is left out: fcnd is not installed"])
    assert "| **erd** | **.950 ± .071** | **.500 ± .000** |" in text
    assert "| `ood-rmd` | .500 ± .000 | **.500 ± .000** |" in text
    assert "`ood-vim` failed on 1 batches of waste: out of breath" in text
    assert "fcnd-full is left out" in text
    assert f"| `ood-rmd` | pytorch-ood | {PEERS['ood-rmd'].lines} | 3 | 0.10 |" in text
    assert "| **erd** | erd | 2 | 9 | 0.90 |" in text
    assert "- In less time, on every set: `ood-rmd`\n" in text
    assert "- In fewer lines, on every set: none\n" in text
    assert "nowhere in these sets" in text


def test_a_promise_is_said_in_words() -> None:
    assert str(Promise("known", 0.1)) == "10% of known images are flagged"
    assert "| `sklearn-lof` | nothing |" in peers_page.flags(
        peers_page.Table([measured("sklearn-lof", 0, any_flag=True, fdp=0.9, power=0.5)]), "waste"
    )
