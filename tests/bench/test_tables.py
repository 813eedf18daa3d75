"""The tables people read: means and spreads, what is bold, what is quoted, where they are put."""

import statistics
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from erd.bench import detectors, paper, tables
from erd.bench.rows import Row, read_rows
from erd.settings.families import get


def row(method: str, seed: int = 0, auroc: float | None = 0.9, scenario: str = "fmnist-near", **more: Any) -> Row:
    quoted = paper.of(scenario, method)
    plain = Row(
        scenario=scenario,
        method=method,
        setting=detectors.get(method).setting,
        seed=seed,
        auroc=auroc,
        tnr95=auroc,
        aupr=auroc,
        evaluated_on=get(scenario).evaluated_on,
        batch_auroc=auroc,
        batch_tnr95=auroc,
        holdout_auroc=auroc and auroc - 0.1,
        holdout_tnr95=auroc,
        seconds=auroc and 12.3,
        paper_auroc=quoted and quoted.auroc,
        paper_tnr95=quoted and quoted.tnr95,
    )
    return replace(plain, **more)


def cells(text: str, method: str) -> list[str]:
    """Of the line of a method in the first table that has it."""
    [line, *_] = [line for line in text.splitlines() if line.startswith(f"| {method} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_line_is_mean_and_spread_over_seeds_with_the_papers_figure_beside() -> None:
    values = [0.95, 0.96, 0.955]
    text = tables.markdown([row("erd", seed, value) for seed, value in enumerate(values)])
    spread = f"{statistics.stdev(values):.3f}".lstrip("0")
    shown = cells(text, "erd")
    assert shown[1] == f"**.955 ± {spread}**"
    assert shown[3] == f"**.855 ± {spread}**", "on the holdout"
    assert shown[5] == ".94 / .67", "the paper's, as SCIENCE.md has it"
    assert shown[6] == "12"
    assert "paper (batch)" in text
    assert "over 3 seeds" in text


def test_one_seed_has_no_spread_and_perfect_is_one() -> None:
    assert cells(tables.markdown([row("erd", auroc=0.9999)]), "erd")[1:3] == ["**1.000**", "**1.00**"]


def test_the_best_of_each_setting_is_bold_and_so_is_what_looks_equal() -> None:
    text = tables.markdown(
        [row("energy", auroc=0.7), row("max-softmax", auroc=0.6), row("binary", auroc=0.9501), row("erd", auroc=0.9502)]
    )
    assert cells(text, "energy")[1] == "**.700**", "though others that may see more are better"
    assert cells(text, "max-softmax")[1] == ".600"
    assert cells(text, "binary")[1] == cells(text, "erd")[1] == "**.950**"


def test_failures_outliers_and_tests_of_the_batch_are_notes() -> None:
    rows = [
        row("oe", 0, outliers="cifar10"),
        row("oe", 1, None, error="training diverged"),
        row("dpn", 0, outliers="cifar10"),
        row("erd", 0, batch_p=0.0123),
    ]
    text = tables.markdown(rows)
    assert "- oe: failed with 1 of 2 seeds: training diverged" in text
    assert "- oe, dpn: outliers: cifar10" in text or "- dpn, oe: outliers: cifar10" in text
    assert "- erd: p-value of the whole batch: 0.012" in text
    assert cells(text, "oe")[1] == "**.900**", "of the seed that did not fail"


def test_where_few_images_are_novel_the_first_looks_have_a_column() -> None:
    few: dict[str, Any] = {"batch_p50": 0.44, "batch_share": 0.1}
    rows = [row("erd", scenario="mnist-one-3", **few), row("erd", batch_p50=1.0, batch_share=0.5)]
    text = tables.markdown(rows)
    sections = {part.splitlines()[0]: part for part in text.split("\n## ")}
    assert "| P@50, batch |" in sections["mnist-one-3"]
    assert cells(sections["mnist-one-3"], "erd")[5] == "**.44**"
    assert "P@50" not in sections["fmnist-near"], "half of that batch is novel"
    assert "P@50: the share of novel images among the 50 highest scores" in text
    assert "P@50" not in tables.markdown(rows[1:])
    page = tables.html(rows)
    assert page.count("<th>P@50, batch</th>") == 1
    assert "<td><b>.44</b></td>" in page
    assert "<th>P@50" not in tables.html(rows[1:])


def test_corruptions_are_told_as_their_average_and_their_worst() -> None:
    rows = [
        row("erd", 0, 0.9, "cifar10-c5-fog"),
        row("erd", 0, 0.7, "cifar10-c5-snow"),
        row("erd", scenario="cifar10-v2"),
    ]
    text = tables.markdown(rows)
    sections = {part.splitlines()[0]: part for part in text.split("\n## ")}
    assert set(sections) >= {"cifar10-v2", "cifar10-c5 (A)", "cifar10-c5 (W)"}
    assert "cifar10-c5-fog" not in sections
    average, worst = (cells(sections[f"cifar10-c5 ({sign})"], "erd") for sign in "AW")
    assert (average[1], worst[1]) == ("**.800**", "**.700**")
    assert (average[5], worst[5]) == ("1.00 / .99", ".98 / .86"), "the paper's"
    assert "the worst of 2 corruptions, severity 5" in sections["cifar10-c5 (W)"]
    assert cells(sections["cifar10-c5 (W)"], "snow") == ["snow", "**.70**"], "which of them it is that is missed"
    page = tables.html(rows)
    assert 'id="cifar10-c5(W)"' in page
    assert "<td>snow</td><td><b>.70</b></td>" in page
    alone = tables.markdown(rows[:1])
    assert "## cifar10-c5-fog" in alone


def test_a_table_says_what_was_set_otherwise() -> None:
    assert "Otherwise than usual" not in tables.markdown([row("erd")])
    otherwise = {"model.net": "resnet20", "data.batch_known": 700, "pretrain.epochs": 20}
    text = tables.markdown([row("erd", otherwise=otherwise)])
    assert "Net: resnet20. Batch: 700 known and 5,000 novel images. Otherwise than usual: pretrain.epochs=20." in text


def test_what_the_paper_says_of_methods_that_are_not_run_is_quoted() -> None:
    text = tables.markdown([row("erd", scenario="cifar10-near")])
    quoted = [line for line in text.splitlines() if "(quoted)" in line]
    figures = paper.figures()
    there = set(figures[figures["scenario"] == "cifar10-near"]["method"]) - set(detectors.table())
    assert {line.split()[1] for line in quoted} == there
    assert "vit" in there
    assert "not run here" in text
    others = text[text.index("## Reported by others") :]
    assert cells(others, "csi")[:3] == ["csi", "Tack2020", ".92"]
    assert "Reported by others" not in tables.markdown([row("erd", scenario="digits-near")])


class Page(HTMLParser):
    """What a browser would load, and the text it would show."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loaded: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loaded += [value or "" for key, value in attributes if key in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_needs_nothing_else_and_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row("erd", seed, 0.95) for seed in (0, 1)] + [row("oe", 0, None, error="<script>alert(1)</script>")]
    rows += [row("erd", scenario="mnist-near")]
    page = Page(tables.html(rows))
    assert all(link.startswith("#") for link in page.loaded), "only within the page"
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert "<script>alert(1)</script>" in page.text, "as text"
    assert ".950 ± .000" in page.text
    assert ".94 / .67" in page.text
    assert detectors.get("erd").formula in page.text
    assert "prefers-color-scheme: dark" in page.text


def test_all_three_files_are_written(tmp_path: Path) -> None:
    rows = [row("erd")]
    assert [path.name for path in tables.write(rows, tmp_path)] == ["results.json", "results.md", "results.html"]
    assert read_rows(tmp_path / "results.json") == rows
    assert (tmp_path / "results.md").read_text().endswith(tables.markdown(rows))
