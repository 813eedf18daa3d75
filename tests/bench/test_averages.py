"""What the paper prints of corruptions: their average and the worst of them."""

from dataclasses import replace

import pytest

from erd.bench.averages import average_and_worst
from erd.bench.rows import Row
from erd.settings.families import expand


def row(scenario: str, method: str, auroc: float, tnr95: float) -> Row:
    return Row(scenario=scenario, method=method, setting="", seed=0, evaluated_on="batch", auroc=auroc, tnr95=tnr95)


def test_average_and_worst_over_corruptions() -> None:
    rows = [
        row(name, method, 0.5 + 0.02 * i + shift, 0.9 - 0.05 * i)
        for i, name in enumerate(expand("fmnist-c5"))
        for method, shift in (("erd", 0.1), ("vanilla", 0.0))
    ]
    rows.append(row("fmnist-near", "erd", 0.1, 0.1))
    found = {(row.scenario, row.method): row for row in average_and_worst(rows)}
    assert set(found) == {(f"fmnist-c5 ({sign})", method) for sign in "AW" for method in ("erd", "vanilla")}
    assert found["fmnist-c5 (A)", "erd"].auroc == pytest.approx(0.74)
    assert found["fmnist-c5 (W)", "erd"].auroc == pytest.approx(0.6)
    assert found["fmnist-c5 (W)", "vanilla"].tnr95 == pytest.approx(0.2), "the worst of each figure on its own"
    assert found["fmnist-c5 (A)", "erd"].corruptions == 15
    looks = [replace(each, p50=0.9 - 0.1 * i, batch_p50=0.9 - 0.1 * i) for i, each in enumerate(rows[:4:2])]
    assert [each.p50 for each in average_and_worst(looks)] == pytest.approx([0.85, 0.8])
    assert [each.batch_p50 for each in average_and_worst(looks)] == pytest.approx([0.85, 0.8])
    failed = average_and_worst([replace(rows[0], auroc=None, error="no luck"), *rows[1:]])[0]
    assert (failed.auroc, failed.error) == (None, "no luck")
