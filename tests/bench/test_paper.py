"""The paper's figures are what the paper prints, and the right one of them is found for a scenario and a method."""

import tomllib
from pathlib import Path

import pytest

import erd
from erd.base.errors import UserError
from erd.bench import paper
from erd.bench.paper import Figure, figures, of
from erd.settings.families import like

ROWS = {  # all results tables, each with as many rows as it prints figures, averages included
    "table:main_results": 60,
    "table:score_comparison": 28,
    "table:ss_vs_transductive": 16,
    "table_cifar10_cifar100": 22,
    "table:vit": 36,
    "table:cifar10v2": 8,
    "table:all_resnet_results": 80,
    "small-batch": 105,
    "table:oe": 10,
    "mnist-results": 50,
    "architectures": 54,
    "ensemble-size": 56,
    "table:different_ood": 16,
}
PRINTED: dict[str, dict[str, tuple[float, float | None]]] = {
    "fmnist-near": {"erd": (0.94, 0.67), "erd++": (0.94, 0.68), "vanilla": (0.64, 0.07), "nnpu": (0.95, 0.71),
                    "binary": (0.95, 0.66), "mcd": (0.78, 0.30), "mahal-u": (0.82, 0.39)},
    "mnist-near": {"erd": (0.99, 0.96), "erd++": (0.99, 0.97), "vanilla": (0.94, 0.72), "nnpu": (0.99, 0.97),
                   "binary": (0.99, 0.94), "dpn": (0.99, 0.97), "oe": (0.95, 0.78)},
    "mnist-fmnist": {"erd": (1.0, 1.0), "erd++": (1.0, 1.0), "vanilla": (0.81, 0.01), "nnpu": (1.0, 1.0),
                     "binary": (1.0, 1.0), "mcd": (1.0, 0.98)},
    "fmnist-mnist": {"erd": (1.0, 1.0), "erd++": (1.0, 1.0), "vanilla": (0.87, 0.42), "nnpu": (1.0, 1.0),
                     "binary": (1.0, 1.0), "oe": (0.68, 0.16)},
    "cifar10-near": {"erd": (0.89, 0.57), "erd++": (0.94, 0.70), "vanilla": (0.80, 0.39), "nnpu": (0.61, 0.11),
                     "binary": (0.85, 0.43), "gram": (0.67, 0.15), "vit": (0.97, 0.83)},
    "cifar100-near": {"erd": (0.81, 0.41), "mahalanobis": (0.72, 0.20)},
    "svhn-near": {"erd": (0.95, 0.73), "erd++": (0.95, 0.75), "dpn": (0.87, 0.19)},
    "svhn-cifar10": {"erd": (0.99, 0.98)},
    "cifar10-svhn": {"erd-entropy": (0.92, 0.92), "vanilla-disagreement": (0.91, 0.78)},
    "cifar100-svhn": {"gram": (0.99, 0.97)},
    "cifar10-v2": {"erd": (0.76, 0.26), "mcd": (0.58, 0.10)},
    "tinyimagenet-objectnet": {"erd": (0.98, 0.88)},
    "cifar10-near-c5 (W)": {"erd": (0.86, None), "vanilla": (0.79, None)},
    "padchest-uc3-unseen": {"erd": (0.77, 0.17)},
}  # fmt: skip


def test_every_results_table_is_there_whole() -> None:
    assert figures().groupby("table").size().to_dict() == ROWS


@pytest.mark.parametrize(("scenario", "method"), [(name, method) for name, row in PRINTED.items() for method in row])
def test_the_figures_of_the_scenarios_are_the_printed_ones(scenario: str, method: str) -> None:
    figure = of(scenario, method)
    assert figure is not None
    assert (figure.auroc, figure.tnr95) == PRINTED[scenario][method]


def test_figures_of_no_scenario_are_there_too() -> None:
    rows = figures()

    def printed(table: str, novel: str, method: str) -> list[float]:
        chosen = rows[(rows["table"] == table) & (rows["novel"] == novel) & (rows["method"] == method)]
        return chosen["auroc"].tolist()

    assert printed("table_cifar10_cifar100", "CIFAR100", "vit") == [0.9852]  # printed in per cent
    assert printed("table_cifar10_cifar100", "CIFAR10, 4 random classes", "u-lac") == [0.85]
    assert printed("table:vit", "PC UC3 (Xray)", "erd") == [0.77]
    assert printed("table:oe", "average", "oe") == [0.87, 0.98]
    assert printed("table:cifar10v2", "CIFAR10v2", "erd++") == [0.91]
    assert printed("table:all_resnet_results", "Tiny ObjectNet", "mcd") == [0.99]
    assert printed("table:different_ood", "CIFAR100 50-99 C sev 5 (W)", "vanilla") == [0.63]
    assert printed("architectures", "CIFAR10-C sev 2 (W)", "erd") == [0.68, 0.68, 0.84]


def test_printed_averages_are_those_of_the_rows() -> None:
    """A figure in the wrong row or column would show."""
    rows = figures()
    rows = rows[rows["table"] != "table:oe"]  # averages only half of its rows
    net = rows["net"].where(rows["table"] == "architectures", "")  # elsewhere it goes with the method and the images
    rows = rows.assign(net=net, members=rows["members"].fillna(0))
    total = rows["known"] == "average"
    of_table = ["table", "method", "members", "net", "evaluated_on"]
    means = rows[~total].groupby(of_table)[["auroc", "tnr95"]].mean()
    printed = rows[total].set_index(of_table)[["auroc", "tnr95"]]
    assert len(printed) == 4 + 2 + 8 + 7 + 10 + 6 + 8
    assert ((means.loc[printed.index] - printed).abs() <= 0.0101).all(axis=None)  # of figures that were rounded first


def test_every_cell_is_a_possible_one() -> None:
    rows = figures()
    assert rows["auroc"].between(0, 1).all()
    assert rows["tnr95"].dropna().between(0, 1).all()
    assert set(rows["evaluated_on"]) == {"batch", "holdout", ""}
    for name in set(rows["scenario"]) - {""}:
        like(name)
    for name in ("table", "known", "novel", "method"):
        assert (rows[name] != "").all(), name


def test_no_figure_is_there_twice() -> None:
    key = [name for name in paper.COLUMNS if name not in ("auroc", "tnr95", "scenario")]
    assert not figures().duplicated(key).any()


def test_known_and_novel_of_a_scenario_are_the_same_in_every_table() -> None:
    rows = figures()
    pairs = rows[rows["scenario"] != ""].groupby("scenario")[["known", "novel"]].nunique()
    assert (pairs == 1).all(axis=None)
    fmnist = rows[rows["scenario"] == "fmnist-near"].iloc[0]
    assert (fmnist["known"], fmnist["novel"]) == ("FMNIST 0,2,3,7,8", "FMNIST 1,4,5,6,9")


def test_a_main_table_comes_first() -> None:
    assert of("fmnist-near", "erd++") == Figure(0.94, 0.68, 5, "mlp", "batch", "mnist-results")  # not table:vit's .95
    assert of("cifar10-near", "erd") == Figure(0.89, 0.57, 3, "resnet20", "holdout", "table:main_results")


def test_of_the_others_the_one_nearest_to_the_scenario_comes_first() -> None:
    assert of("cifar10-near", "erd++") == Figure(0.94, 0.70, 3, "resnet20", "holdout", "ensemble-size")


def test_what_the_paper_does_not_say_is_none() -> None:
    nnpu = of("cifar10-near", "nnpu")
    assert nnpu is not None
    assert (nnpu.members, nnpu.net) == (None, None)
    assert of("fmnist-near", "gram") is None
    assert of("digits-near", "erd") is None


def test_a_scenario_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(UserError, match="fmnist-near"):
        of("fmnist-ner", "erd")


def test_the_figures_are_part_of_the_package() -> None:
    """Also where erd is installed without its repository."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    inside = paper.TABLES.relative_to(Path(erd.__file__).parent)
    assert inside.as_posix() in project["tool"]["setuptools"]["package-data"]["erd"]
