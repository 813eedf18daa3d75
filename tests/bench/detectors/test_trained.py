"""Methods that train a net: their losses and scores on numbers worked out by hand, and what they find among digits."""

import functools
from collections.abc import Callable
from pathlib import Path

import chains
import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import digamma, gammaln
from torch import Tensor

from erd.bench.detectors import (
    Detector,
    Given,
    Labeled,
    Undeclared,
    binary,
    detectron,
    divdis,
    dpn,
    eulac,
    get,
    mahal_u,
    mcd,
    nnpu,
    outlier_exposure,
    sal,
    woods,
)
from erd.bench.detectors.shared import trained
from erd.data import packed
from erd.data.packed import Rows
from erd.runs.configure import settings_for
from erd.runs.folder import RunDir
from erd.training.members import load_net

NAMES = ("erd", "erd++", "erd-avg", "erd-avg-weights", "erd-avg-ema", "erd++-avg", "oe", "dpn", "nnpu", "nnpu-bbe",
         "mcd", "mahal-u", "binary", "u-lac", "woods", "sal", "detectron", "divdis")  # fmt: skip
KNOWN_AND_BATCH = torch.tensor([0, 0, 1, 1], dtype=torch.int8)
LABELS = torch.tensor([0, 2, 0, 0])
OUTPUTS = torch.tensor([[2.0, 0.0, -1.0], [0.5, 0.5, 1.5], [1.0, 3.0, 0.0], [-1.0, 0.0, 0.5]], dtype=torch.float64)


@pytest.fixture(scope="module")
def fitted(given_to: Callable[..., Given]) -> Callable[[str], Detector]:
    """Each method is trained once."""
    return functools.cache(lambda name: get(name).fit(given_to(name)))


@pytest.mark.parametrize("name", ["nnpu-bbe", "woods", "sal", "detectron"])
def test_trained_again_it_says_the_same(
    name: str, fitted: Callable[[str], Detector], given_to: Callable[..., Given]
) -> None:
    given = given_to(name)
    torch.manual_seed(1)  # the global generator is nobody's business
    again = get(name).fit(given)
    assert torch.equal(again.score(given.batch), fitted(name).score(given.batch))
    assert again.batch_p == fitted(name).batch_p


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("erd", ["finetune.keep=best", "finetune.epochs=3"]),
        ("erd++", ["finetune.keep=best", "finetune.init=random"]),
        ("erd-avg", ["finetune.keep=softmax-average", "finetune.epochs=3"]),
    ],
)
def test_members_are_the_products(name: str, overrides: list[str], tmp_path: Path) -> None:
    said = ["detect.calibration=paper", "run.runner=serial", "pretrain.epochs=4", "seed=5"]
    params = tmp_path / "params.yaml"
    params.write_text("")
    settings = settings_for(params=params, scenario="digits-near", overrides=[*said, *overrides])
    run = RunDir(tmp_path / "run")
    chains.do(settings, run, "ingest", "pretrain", "finetune", "score")
    labeled, batch = packed.read(run.labeled), packed.read(run.batch)
    classifier, _ = load_net(run.pretrained)
    # What the method does is in its name: settings that ask for something else do not reach it.
    other = settings.override({"finetune.keep": "last", "finetune.init": "pretrained"})
    if name == "erd++":
        other = other.override({"finetune.epochs": 1})  # its schedule is the pretraining one
    seen = {
        "train": Labeled(labeled.rows("train"), labeled.labels_of("train")),
        "val": Labeled(labeled.rows("val"), labeled.labels_of("val")),
        "classifier": classifier,
        "batch": batch.rows(),
    }
    given = Given(get(name), other, labeled.facts["classes"], torch.device("cpu"), classifier,
                {what: seen[what] for what in get(name).sees})  # fmt: skip
    scores = get(name).fit(given).score(batch.rows()).numpy()
    assert np.array_equal(scores, pd.read_parquet(run.scores)["score"].to_numpy())


def test_records_say_who_is_told_what() -> None:
    settings = {name: get(name).setting for name in NAMES}
    assert [name for name in NAMES if settings[name] == "known outliers"] == ["oe", "dpn"]
    assert [name for name in NAMES if settings[name] == "oracle"] == ["nnpu"]
    for name in NAMES:
        assert ("outliers" in get(name).sees) == (settings[name] == "known outliers")
        assert ("novel_share" in get(name).sees) == (name == "nnpu")
        assert not {"novel", "encoder"} & set(get(name).sees)


def test_the_estimated_share_comes_from_no_oracle(given_to: Callable[..., Given]) -> None:
    given = given_to("nnpu-bbe")
    with pytest.raises(Undeclared):
        _ = given.novel_share
    assert 0.4 < trained.estimated_known_share(given) < 0.65
    known = given_to("nnpu-bbe", batch=Rows(given.batch.images, torch.arange(170)))
    assert trained.estimated_known_share(known) > 0.85


# Losses and scores. Rows 0 and 1 of OUTPUTS are known, with LABELS, rows 2 and 3 of the batch.


def cross_entropy(row: int, label: int) -> float:
    z = OUTPUTS[row].numpy()
    return float(np.log(np.exp(z).sum()) - z[label])


def test_outlier_exposure_loss() -> None:
    uniform = np.mean([np.mean([cross_entropy(row, label) for label in range(3)]) for row in (2, 3)])
    known = (cross_entropy(0, 0) + cross_entropy(1, 2)) / 2
    assert outlier_exposure.loss(OUTPUTS, LABELS, KNOWN_AND_BATCH).item() == pytest.approx(known + 0.5 * uniform)
    only_known = torch.zeros(4, dtype=torch.int8)
    everything = [cross_entropy(row, int(label)) for row, label in enumerate(LABELS)]
    assert outlier_exposure.loss(OUTPUTS, LABELS, only_known).item() == pytest.approx(np.mean(everything))


def dirichlet_kl(a: np.ndarray, b: np.ndarray) -> float:
    norm = gammaln(a.sum()) - gammaln(a).sum() - gammaln(b.sum()) + gammaln(b).sum()
    return float(norm + ((a - b) * (digamma(a) - digamma(a.sum()))).sum())


def test_prior_network_loss_and_score() -> None:
    alpha, flat = np.exp(OUTPUTS.numpy()), np.ones(3)
    known = np.mean([dirichlet_kl(alpha[0], np.array([101.0, 1, 1])), dirichlet_kl(alpha[1], np.array([1.0, 1, 101]))])
    outliers = np.mean([dirichlet_kl(alpha[2], flat), dirichlet_kl(alpha[3], flat)])
    loss = dpn.loss(OUTPUTS, LABELS, KNOWN_AND_BATCH).item()
    assert loss == pytest.approx((known + 10 * outliers) / 100)
    same = torch.tensor([[2.0, 3.0, 4.0]])
    assert dpn.kl_of_dirichlets(same, same).item() == pytest.approx(0, abs=1e-5)
    # Mutual information: entropy of the mean minus the mean entropy, here by drawing.
    draws = np.random.default_rng(0).dirichlet([2.0, 3.0, 4.0], 200_000)
    mean = draws.mean(0)
    drawn = -(mean * np.log(mean)).sum() + (draws * np.log(draws)).sum(1).mean()
    assert dpn.mutual_information(same).item() == pytest.approx(drawn, abs=3e-3)
    sharp, blunt = dpn.mutual_information(torch.tensor([[900.0, 1, 1], [1, 1, 1]], dtype=torch.float64)).tolist()
    assert 0 < sharp < blunt


def test_nnpu_loss() -> None:
    g = torch.tensor([[2.0], [1.0], [-1.0], [0.5]], requires_grad=True)
    wrong = 1 / (1 + np.exp([2.0, 1.0, -1.0, 0.5]))  # ℓ(g) = sigmoid(−g), and ℓ(−g) is 1 − it
    known, novel = 0.5 * wrong[:2].mean(), (1 - wrong[2:]).mean() - 0.5 * (1 - wrong[:2]).mean()
    assert novel > 0
    assert nnpu.risk(0.5)(g, LABELS, KNOWN_AND_BATCH).item() == pytest.approx(known + novel)
    # All of the batch called novel: fewer known ones than there must be. The step goes up the second part's gradient.
    g = torch.tensor([[3.0], [3.0], [-4.0], [-4.0]], requires_grad=True)
    wrong = 1 / (1 + np.exp([3.0, 3.0, -4.0, -4.0]))
    novel = (1 - wrong[2:]).mean() - 0.5 * (1 - wrong[:2]).mean()
    assert novel < 0
    loss = nnpu.risk(0.5)(g, LABELS, KNOWN_AND_BATCH)
    loss.backward()
    assert loss.item() == pytest.approx(-novel)
    assert g.grad is not None
    assert (g.grad[2:] < 0).all()  # a descent moves the batch back towards known


def test_nnpu_risk_is_that_of_known_against_novel() -> None:
    """With a batch that is exactly half known the estimate is the risk with all labels."""
    rng = np.random.default_rng(0)
    known, novel = rng.normal(1, 1, 50), rng.normal(-1, 1, 50)
    outputs = torch.from_numpy(np.concatenate([known, known, novel]))
    labelled = torch.arange(150) < 50
    parts = nnpu.parts_of_risk(outputs, labelled, ~labelled, 0.5)
    truth = 0.5 * (1 / (1 + np.exp(known))).mean(), 0.5 * (1 / (1 + np.exp(-novel))).mean()
    assert [part.item() for part in parts] == pytest.approx(truth)


def test_augmented_class_risk_is_that_of_a_classifier_with_all_labels() -> None:
    rng = np.random.default_rng(0)
    known, novel = rng.normal(size=(60, 4)), rng.normal(size=(20, 4))
    labels = rng.integers(0, 3, 60)

    def psi(f: np.ndarray, k: int) -> float:
        signs = np.where(np.arange(4) == k, 1, -1)
        return float((1 / (1 + np.exp(signs * f))).sum())

    outputs = torch.from_numpy(np.concatenate([known, known, novel]))
    labelled = torch.arange(140) < 60
    parts = eulac.parts_of_risk(
        outputs, torch.from_numpy(np.concatenate([labels, np.zeros(80, int)])), labelled, ~labelled, 0.75
    )
    truth = (
        0.75 * np.mean([psi(f, y) for f, y in zip(known, labels, strict=True)]),
        0.25 * np.mean([psi(f, 3) for f in novel]),
    )
    assert [part.item() for part in parts] == pytest.approx(truth)
    assert eulac.margin(torch.tensor([[1.0, 3.0, 2.5]])).item() == pytest.approx(-0.5)


def test_mcd_loss_and_score() -> None:
    outputs = torch.cat([OUTPUTS, OUTPUTS.roll(1, 1)], 1)
    softmax = np.exp(outputs.numpy().reshape(4, 2, 3))
    softmax /= softmax.sum(2, keepdims=True)
    entropy = -(softmax * np.log(softmax)).sum(2)
    classify = sum(-np.log(softmax[row, head, label]) for row, label in ((0, 0), (1, 2)) for head in (0, 1)) / 2
    apart = (entropy[2:, 0] - entropy[2:, 1]).mean()
    assert mcd.loss(outputs, LABELS, KNOWN_AND_BATCH).item() == pytest.approx(classify + 1.2 - apart)
    # One head even over three classes and the other sure: still not 1.2 apart, but with four classes they are.
    even_and_sure = torch.tensor([[0.0] * 4 + [50.0, 0, 0, 0]])
    batch = torch.ones(1, dtype=torch.int8)
    assert mcd.loss(even_and_sure, LABELS[:1], batch).item() == 0
    assert mcd.discrepancy(even_and_sure).item() == pytest.approx(1.5)


def test_binary_loss_and_the_net_that_learned_nothing() -> None:
    g = torch.tensor([[2.0], [-1.0], [0.0], [3.0]])
    known, batch = np.log1p(np.exp([2.0, -1.0])), np.log1p(np.exp([0.0, -3.0]))
    loss = trained.batch_against_known(0.5)(g, LABELS, KNOWN_AND_BATCH)
    assert loss.item() == pytest.approx((known.sum() + 0.5 * batch.sum()) / 4)
    low, high = -torch.ones(10), torch.ones(10)
    assert binary.called_known(low, torch.cat([low, high])) == 1
    assert binary.called_known(low, low) == 0  # everything is known to it


def test_woods_constraint() -> None:
    constraint = woods.Constraint(multiplier=0.5, weight=2.0)
    violated, kept = torch.tensor(0.3), torch.tensor(-0.4, requires_grad=True)
    assert constraint.term(violated).item() == pytest.approx(0.5 * 0.3 + 0.3**2)
    assert constraint.term(kept).item() == pytest.approx(-(0.5**2) / 4)
    constraint.term(kept).backward()
    assert kept.grad is not None
    assert kept.grad.item() == 0  # what is kept with room to spare does not pull
    constraint.update(0.3)
    assert (constraint.multiplier, constraint.weight) == pytest.approx((0.8, 3.0))
    constraint.update(-0.4)
    assert (constraint.multiplier, constraint.weight) == pytest.approx((0.8 - 0.8 / 3, 3.0))


def test_woods_starts_with_five_percent_false_alarms() -> None:
    outputs = torch.randn(1000, 5, generator=torch.Generator().manual_seed(0))
    scale, shift = woods.starting_line(outputs)
    score = scale * outputs.logsumexp(1) + shift
    assert scale < 0  # much energy is known
    assert (score > 0).float().mean().item() == pytest.approx(0.05, abs=2e-3)
    assert score.std().item() == pytest.approx(1, abs=1e-3)


def test_sal_finds_the_first_singular_vector() -> None:
    generator = torch.Generator().manual_seed(0)
    residual, features = (torch.randn(40, n, generator=generator, dtype=torch.float64) for n in (3, 5))
    features[:15] += torch.tensor([4.0, 0, 0, 0, 0])
    mean = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    gradients = sal.Gradients(residual, features, mean)
    written = np.einsum("nc,nd->ncd", residual.numpy(), features.numpy()).reshape(40, 15) - mean.numpy().ravel()
    first = np.linalg.svd(written)[2][0]
    found = gradients.first_singular_vector(torch.ones(3, 5, dtype=torch.float64)).numpy().ravel()
    assert abs(found @ first) == pytest.approx(1, abs=1e-6)
    along = gradients.along(torch.from_numpy(first).view(3, 5)).numpy()
    assert along == pytest.approx(written @ first)


def test_sal_loss() -> None:
    outputs = torch.cat([OUTPUTS, torch.tensor([[-2.0], [1.0], [0.5], [4.0]])], 1)
    separate = (np.log1p(np.exp([-2.0, 1.0])).mean() + np.log1p(np.exp([-0.5, -4.0])).mean()) / 2
    classify = (cross_entropy(0, 0) + cross_entropy(1, 2)) / 2
    assert sal.loss(outputs, LABELS, KNOWN_AND_BATCH).item() == pytest.approx(classify + 10 * separate)


def test_detectron_loss() -> None:
    z = OUTPUTS.numpy()
    contrary = [np.log(np.exp(z[row]).sum()) - (z[row, 1] + z[row, 2]) / 2 for row in (2, 3)]  # both predicted as 0
    by_hand = (cross_entropy(0, 0) + cross_entropy(1, 2) + sum(contrary) / 3) / 4
    assert detectron.loss(OUTPUTS, LABELS, KNOWN_AND_BATCH).item() == pytest.approx(by_hand)


def test_detectron_tests_the_batch(fitted: Callable[[str], Detector], given_to: Callable[..., Given]) -> None:
    assert fitted("detectron").batch_p == 1 / 20_000
    batch = given_to("detectron").batch
    without = given_to("detectron", batch=Rows(batch.images, torch.arange(170)))
    p = get("detectron").fit(without).batch_p
    assert p is not None
    assert p > 0.05


def repulsion(first: Tensor, second: Tensor) -> float:
    return divdis.repulsion(first, second, torch.full((2,), 0.5)).item()


def test_divdis_repulsion() -> None:
    heads = torch.eye(2)
    first, second = heads[[0, 0, 1, 1]], heads[[0, 1, 0, 1]]
    assert repulsion(first, second) == pytest.approx(0, abs=1e-6)  # independent, and balanced
    assert repulsion(first, first) == pytest.approx(np.log(2))  # one tells the other
    assert repulsion(first, 1 - first) == pytest.approx(np.log(2))
    unequal = heads[[0, 0, 0, 0, 0, 0, 1, 1]]  # ¾ and ¼, and independent of ½ and ½
    away = 0.75 * np.log(1.5) + 0.25 * np.log(0.5)
    assert repulsion(unequal, heads[[0, 1, 0, 1, 0, 1, 0, 1]]) == pytest.approx(away, abs=1e-6)
    assert repulsion(heads[[0, 0]], heads[[0, 0]]) == pytest.approx(2 * np.log(2))  # both call all the same class


def test_mahal_u_regression_stops_where_val_says(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    known, val = (torch.randn(400, 2, generator=generator, dtype=torch.float64) for _ in range(2))
    novel = torch.randn(200, 2, generator=generator, dtype=torch.float64) + torch.tensor([4.0, 0.0])
    batch = torch.cat([known[:200], novel])

    def errors(steps: int) -> int:
        monkeypatch.setattr(mahal_u, "STEPS", steps)
        weights, bias = mahal_u.logistic_regression(known, batch, val)
        assert weights[0] > 5 * abs(weights[1])  # only the first distance tells
        return int((val @ weights + bias > 0).sum())

    first, few, many = errors(1), errors(20), errors(500)
    assert first > few >= many
