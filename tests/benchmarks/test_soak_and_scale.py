"""benchmarks/soak.py and scale.py: what they tell of weeks and of images that were measured."""

import itertools
from typing import Any

import numpy as np
import pytest
import scale
import soak


def lived(number: int, **more: Any) -> dict[str, Any]:
    """A week of twenty that grows in nothing but what it has to."""
    row = {"week": f"week-{number:03}", "alarm": False, "flagged": 0, "pid": 1, "seconds": {"run": 10.0}}
    sizes = {"memory": {"process": 10**9}, "disk": {"runs": number * 10**7}, "rows": {"mlflow": 480 * number}}
    return row | sizes | more


def test_first_and_last_weeks_are_compared_and_false_alarms_counted() -> None:
    weeks = [lived(number) for number in range(1, 21)]
    weeks[4] |= {"alarm": True, "flagged": 3}
    weeks[7]["seconds"] = {"run": None}  # done before a kill: nobody knows how long it took
    for week in weeks[-5:]:
        week["seconds"], week["memory"] = {"run": 15.0}, {"process": 3 * 10**9}
    found = soak.told(weeks)
    assert found["seconds"]["run"] == {"first": 10.0, "last": 15.0, "ratio": 1.5}
    assert found["memory_mb"]["process"]["ratio"] == 3
    assert found["disk_mb_a_week"]["runs"] == {"first": 10.0, "last": 10.0, "ratio": 1.0}
    assert found["database_rows_a_week"]["mlflow"]["last"] == 480
    assert found["false_alarms"] == {"weeks": 1, "most_by_chance": 0}
    assert found["false_flags"]["weeks"] == 1
    assert soak.told([lived(number) for number in range(1, 105)])["false_alarms"]["most_by_chance"] == 1


def test_memory_is_that_of_the_process_that_went_on() -> None:
    weeks = [lived(number, pid=1 + (number > 12), memory={"process": 10**9 * (1 + (number > 12))})
             for number in range(1, 25)]  # fmt: skip
    found = soak.told(weeks)
    assert found["memory_mb"]["process"]["ratio"] == 1
    assert found["memory_of_weeks"] == 12


def test_a_week_has_the_same_pictures_again_and_no_other_week_has_them() -> None:
    first, again, other = ([(np.asarray(image), digit) for image, digit in itertools.islice(soak.drawn(week), 5)]
                           for week in (3, 3, 4))  # fmt: skip
    assert all(np.array_equal(a, b) and c == d for (a, c), (b, d) in zip(first, again, strict=True))
    assert not any(np.array_equal(a, b) for (a, _), (b, _) in itertools.product(first, other))


def test_a_hundred_sites_are_what_an_image_takes_times_their_images() -> None:
    stages = {"encode": {"seconds": [8.0, 15.5], "seconds_per_10000": 75.0, "twice_as_many": 1.94}}
    sizes = {"in the inbox": 30_000, "data/batch.safetensors": 150_528, "features/batch.safetensors": 2_560}
    found = {"images": [1000, 2000], "labelled": 1000, "stages": stages, "bytes_per_image": sizes}
    paper = scale.paper(found)
    assert paper["core_hours"]["encode"] == round(100 * 1_000_000 * 0.0075 / 3600)
    assert paper["terabytes"]["packed"] == pytest.approx(15.05)
    assert paper["database_rows"]["MLflow"] == 100 * 730
    told = scale.tables(found | {"paper": paper})
    assert "| encode | 8.0 | 15.5 | 75.0 | × 1.94 |" in told
    assert "| core hours, encode | 208 |" in told
