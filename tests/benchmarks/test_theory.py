"""Proposition 1 holds where its conditions do, and the pictures that show it and the three kinds of disagreement."""

import json
from pathlib import Path

import proposition
import pytest
import theory
import torch
import toy
from proposition import Setting
from scipy import integrate, stats

from erd.reporting import figures

WIDE = Setting(epsilon=0.2, per_cluster=4)  # beyond the conditions, so that it memorises within seconds
FITTED = {group: 1.0 for group in ("train", "batch_known_right", "batch_novel", "holdout_known", "holdout_novel")}
SEEDS = range(3)


@pytest.mark.parametrize("seed", SEEDS)
def test_where_the_conditions_hold_the_members_at_T_disagree_on_the_novel_only(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proposition, "LATE", 0)  # no further than T
    assert all(condition.met for condition in proposition.conditions(Setting(), seed))
    found = proposition.run(Setting(), seed)
    assert found.at(found.stop) == FITTED | {"batch_known_wrong": 0.0}
    apart = {"batch_known": 0.0, "batch_novel": 1.0, "holdout_known": 0.0, "holdout_novel": 1.0}
    assert found.disagreement_at(found.stop) == apart
    assert found.at(0)["batch_novel"] == 0.5  # the members start as one net


@pytest.mark.parametrize("seed", SEEDS)
def test_long_after_T_the_wrong_labels_are_learned_too(seed: int) -> None:
    found = proposition.run(WIDE, seed)
    assert found.at(found.stop)["batch_known_wrong"] == 0
    late = found.at(found.late)
    assert late["batch_known_wrong"] == late["train"] == late["batch_novel"] == 1
    assert found.disagreement_at(found.late)["batch_known"] == 1


def test_twenty_times_T_is_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposition, "STOP", 20 * proposition.STOP)
    assert all(run.at(run.stop)["batch_known_wrong"] > 0.5 for run in (proposition.run(WIDE, seed) for seed in SEEDS))


def test_a_tenth_of_T_is_too_early_where_centres_are_close(monkeypatch: pytest.MonkeyPatch) -> None:
    close = Setting(overlap=0.8)
    monkeypatch.setattr(proposition, "LATE", 0)
    assert all(run.at(run.stop)["train"] == 1 for run in (proposition.run(close, seed) for seed in SEEDS))
    monkeypatch.setattr(proposition, "STOP", proposition.STOP / 10)
    assert all(run.at(run.stop)["train"] < 1 for run in (proposition.run(close, seed) for seed in SEEDS))


def test_a_step_is_one_of_gradient_descent_on_the_squared_loss() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y, start = (torch.randn(*shape, generator=generator).double() for shape in ((7, 5), (7,), (6, 5)))
    weights = start.clone().requires_grad_()
    loss = ((y - proposition.output(weights, x)) ** 2).sum() / 2
    loss.backward()
    first, second = proposition.descend(x, y, start, 0.1, [0, 1])
    assert weights.grad is not None
    assert torch.equal(first, start)
    assert torch.allclose(second, start - 0.1 * weights.grad, atol=1e-12)


def test_separability_is_the_least_eigenvalue_of_the_expected_kernel() -> None:
    def centres(overlap: float) -> torch.Tensor:
        return proposition.centres(Setting(overlap=overlap), torch.Generator().manual_seed(0))

    density = stats.norm.pdf
    alone, _ = integrate.quad(lambda g: float(proposition.slope(torch.tensor(g))) ** 2 * density(g), -10, 10)
    assert proposition.separability(centres(0.0)) == pytest.approx(alone, abs=1e-6)  # orthogonal: Σ = E[φ'²] I
    c = centres(0.4)
    draws = proposition.slope(c @ torch.randn(24, 200_000, generator=torch.Generator().manual_seed(1)).double())
    assert torch.allclose(proposition.sigma(c), c @ c.T * (draws @ draws.T) / 200_000, atol=5e-3)
    assert proposition.separability(torch.cat([c, c[:1]])) == pytest.approx(0, abs=1e-9)
    assert (
        proposition.stopping_time(centres(0.8)) > proposition.stopping_time(c) > proposition.stopping_time(centres(0.0))
    )


@pytest.mark.parametrize(
    ("setting", "broken"),
    [(Setting(epsilon=0.03), "spread"), (Setting(noise=0.375), "label noise"), (Setting(width=130), "width")],
)
def test_a_condition_that_is_not_met_is_named(setting: Setting, broken: str) -> None:
    found = proposition.conditions(setting)
    assert [condition.name.partition(":")[0] for condition in found if not condition.met] == [broken]


def test_the_command_tells_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = tmp_path / "theory.png"
    theory.main(["--json", "--epsilon", "0.3", "--seed", "2", "--output", str(drawn)])
    told = json.loads(capsys.readouterr().out)
    assert told["T"] == 7
    assert told["at_T"]["train"] == told["at_T"]["batch_novel"] == told["at_late"]["batch_known_wrong"] == 1
    assert [condition["met"] for condition in told["conditions"]].count(False) == 1
    assert len(told["steps"]) == len(told["fit"]["train"])
    assert drawn.read_bytes().startswith(b"\x89PNG")


def test_the_toy_shows_too_little_too_much_and_regularised_disagreement(tmp_path: Path) -> None:
    data = toy.make(0)
    ensembles = {
        "too little": [toy.pretrained(data, 0, number) for number in range(2)],
        "too much": toy.erd(data, 0, toy.schedule(400, keep="last")),
        "regularised": toy.erd(data, 0, toy.schedule(400, patience=toy.PATIENCE)),
    }
    little, much, regularised = (toy.measured(data, members) for members in ensembles.values())
    assert little["known_disagreed"] == little["novel_disagreed"] == 0
    assert much["novel_disagreed"] == regularised["novel_disagreed"] == 1
    assert regularised["known_disagreed"] < 0.1 < 0.5 < much["known_disagreed"]
    figures.save(toy.draw(data, ensembles), tmp_path / "toy.png")
    assert (tmp_path / "toy.png").stat().st_size < 200_000
