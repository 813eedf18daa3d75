"""Who goes where: nobody in two parts, no patient torn apart, no test image in training, and everything by the seed."""

from collections.abc import Iterable, Mapping

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from erd.base.errors import UserError
from erd.data.dealing import Splits, own_sizes, set_apart, split
from erd.data.sources import Images

LABELED = ("train", "val", "calibration")
KNOWN = (*LABELED, "batch_known", "holdout_known")
NOVEL = ("batch_novel", "holdout_novel")
SIZES = {"train": 500, "val": 60, "calibration": 50, "batch_known": 100, "batch_novel": 80, "holdout_known": 70,
         "holdout_novel": 40}  # fmt: skip


def pool(count: int, groups: Iterable[object] | None = None, *, prefix: str = "k") -> Images:
    ids = np.array([f"{prefix}{i}" for i in range(count)], dtype=str)
    named = ids if groups is None else np.array([str(group) for group in groups], dtype=str)
    return Images(np.zeros((count, 1, 1), np.uint8), np.zeros(count, np.int64), ids, named)


def deal(
    labeled: int, test: int, novel: int, sizes: Mapping[str, int] = SIZES, seed: int = 0
) -> tuple[Splits, np.ndarray]:
    """Images that all stand alone, `test` of the known ones in an official test part."""
    in_test = np.repeat([False, True], [labeled, test])
    return split(pool(labeled + test), in_test, pool(novel, prefix="n"), sizes, seed), in_test


def counts(splits: Splits) -> dict[str, int]:
    return {name: len(part) for name, part in splits.parts.items() if name != "clean" or len(part)}


def check_disjoint(splits: Splits, known: int, novel: int) -> None:
    for names, count in ((KNOWN, known), (NOVEL, novel)):
        rows = np.concatenate([splits[name] for name in names])
        assert len(set(rows.tolist())) == len(rows)
        assert set(rows.tolist()) <= set(range(count))


some_sizes = st.fixed_dictionaries(
    {name: st.integers(0, 20 if name == "calibration" else 120) for name in SIZES}
).filter(lambda sizes: sizes["calibration"] * 2 <= sizes["train"])


@given(labeled=st.integers(0, 300), test=st.integers(0, 200), novel=st.integers(0, 200), sizes=some_sizes)
@example(labeled=50, test=10, novel=0, sizes=SIZES | {"train": 1000, "val": 0, "calibration": 0, "holdout_known": 200})
def test_parts_are_disjoint_and_as_large_as_asked_where_there_are_enough_images(
    labeled: int, test: int, novel: int, sizes: dict[str, int]
) -> None:
    try:
        splits, in_test = deal(labeled, test, novel, sizes)
    except UserError:  # what was scaled down cannot spare the calibration images
        assume(False)
    check_disjoint(splits, labeled + test, novel)
    got = counts(splits)
    borrowed = 0
    if test:
        for name in LABELED:
            assert not in_test[splits[name]].any(), "a test image in training"
        assert in_test[splits["batch_known"]].all(), "a training image in the batch"
        borrowed = int((~in_test[splits["holdout_known"]]).sum())
        assert borrowed <= sizes["train"] // 10
        assert borrowed <= got["train"] + got["calibration"], "the holdout took the training set"
        enough = sizes["train"] + sizes["val"] <= labeled
        enough &= sizes["batch_known"] + sizes["holdout_known"] <= test
    else:
        missing = max(0, sum(sizes[name] for name in ("train", "val", "batch_known", "holdout_known")) - labeled)
        enough = missing <= min(sizes["train"] // 10, sizes["holdout_known"])
        borrowed = missing if enough else 0
    if enough:
        assert {name: got[name] for name in KNOWN} == {name: sizes[name] for name in KNOWN} | {
            "train": sizes["train"] - sizes["calibration"] - borrowed
        }
    if sizes["batch_novel"] + sizes["holdout_novel"] <= novel:
        assert {name: got[name] for name in NOVEL} == {name: sizes[name] for name in NOVEL}
    assert all(got[name] <= sizes[name] for name in SIZES)


@pytest.mark.parametrize("test", [0, 200])
def test_the_seed_decides_and_nothing_else(test: int) -> None:
    first, _ = deal(800, test, 150, seed=3)
    np.random.seed(1)
    again, _ = deal(800, test, 150, seed=3)
    other, _ = deal(800, test, 150, seed=4)
    for name in SIZES:
        assert np.array_equal(first[name], again[name])
        assert not np.array_equal(first[name], other[name])


@st.composite
def patients(draw: st.DrawFn) -> tuple[Images, np.ndarray, Images]:
    """Known images with and without an official test part, and novel ones, of patients who may be in all of them."""
    people = draw(st.integers(1, 30))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    weight = rng.dirichlet(np.full(people, draw(st.sampled_from([0.1, 1.0, 10.0]))))  # some have very many images
    known, novel = draw(st.integers(1, 150)), draw(st.integers(0, 80))
    share = draw(st.sampled_from([0.0, 0.0, 0.3, 0.9]))
    by_patient = draw(st.booleans())  # is the official test part one of patients, or of images?
    who = rng.choice(people, known, p=weight)
    in_test = rng.random(people)[who] < share if by_patient else rng.random(known) < share
    return pool(known, who), in_test, pool(novel, rng.choice(people, novel, p=weight), prefix="n")


@given(images=patients(), sizes=some_sizes, seed=st.integers(0, 2**32))
@settings(max_examples=300)
def test_a_patients_images_are_all_in_one_part(
    images: tuple[Images, np.ndarray, Images], sizes: dict[str, int], seed: int
) -> None:
    known, in_test, novel = images
    sizes = sizes | {"calibration": min(sizes["calibration"], 5)}
    try:
        splits = split(known, in_test, novel, sizes, seed)
    except UserError:
        assume(False)
    check_disjoint(splits, len(known), len(novel))
    of_part = {name: set(known.groups[splits[name]]) for name in LABELED}
    for stream in ("batch", "holdout"):
        of_part[stream] = set(known.groups[splits[f"{stream}_known"]]) | set(novel.groups[splits[f"{stream}_novel"]])
    everybody = [group for groups in of_part.values() for group in groups]
    assert len(everybody) == len(set(everybody))
    assert all(len(splits[name]) <= sizes[name] for name in SIZES)
    if in_test.any():
        assert not any(in_test[splits[name]].any() for name in LABELED)
        assert in_test[splits["batch_known"]].all()
        assert (~in_test[splits["holdout_known"]]).sum() <= sizes["train"] // 10


def test_whole_groups_fill_the_parts_as_far_as_they_go() -> None:
    """100 patients of 10 images: parts are filled to the last whole patient."""
    known = pool(1_000, np.arange(1_000) // 10)
    sizes = dict.fromkeys(SIZES, 0) | {"train": 600, "val": 95, "batch_known": 100, "holdout_known": 97}
    splits = split(known, np.zeros(1_000, bool), pool(0), sizes, 0)
    assert counts(splits) | {"train": 600, "val": 90, "batch_known": 100, "holdout_known": 90} == counts(splits)
    assert splits.warnings == (
        "90 images to validate with, not 95: those of a group stay together",
        "90 images known for the holdout, not 97: those of a group stay together",
    )


def test_a_patient_with_known_and_novel_images_may_be_trained_on_and_then_has_no_novel_ones() -> None:
    known, novel = pool(100, range(100)), pool(100, range(100), prefix="n")
    sizes = dict.fromkeys(SIZES, 0) | {"train": 60, "val": 20, "batch_known": 20, "batch_novel": 100}
    splits = split(known, np.zeros(100, bool), novel, sizes, 0)
    assert (len(splits["train"]), len(splits["val"]), len(splits["batch_known"])) == (60, 20, 20)
    assert set(novel.groups[splits["batch_novel"]]) == set(known.groups[splits["batch_known"]])


def test_a_patient_in_training_takes_no_part_in_the_batch_whatever_the_official_split_says() -> None:
    known = pool(300, [*(f"p{i}" for i in range(200)), *(f"p{i}" for i in range(150, 250))])
    in_test = np.repeat([False, True], [200, 100])
    novel = pool(100, [f"p{i}" for i in range(180, 280)])
    sizes = dict.fromkeys(SIZES, 0) | {"train": 180, "val": 20, "batch_known": 50, "batch_novel": 80}
    splits = split(known, in_test, novel, sizes, 0)
    trained = {f"p{i}" for i in range(200)}
    assert set(known.groups[splits["batch_known"]]) <= {f"p{i}" for i in range(200, 250)}
    assert not trained & set(novel.groups[splits["batch_novel"]])
    assert len(splits["batch_known"]) > 40


def test_the_holdout_borrows_from_training_what_the_test_part_cannot_give() -> None:
    sizes = SIZES | {"train": 1_000, "val": 0, "calibration": 100, "batch_known": 100, "holdout_known": 80}
    splits, in_test = deal(1_000, 120, 200, sizes)
    assert counts(splits) | {"train": 840, "batch_known": 100, "holdout_known": 80} == counts(splits)
    assert (~in_test[splits["holdout_known"]]).sum() == 60
    assert splits.warnings == (
        "840 of 1,000 images are trained on: 100 are kept to compare the batch with and 60 are kept for the holdout",
    )


def test_in_one_pool_too_the_holdout_borrows_a_tenth_of_training_if_that_is_enough() -> None:
    sizes = SIZES | {"train": 1_000, "val": 100, "calibration": 0, "batch_known": 100, "holdout_known": 100}
    assert counts(deal(1_200, 0, 200, sizes)[0])["train"] == 900
    assert counts(deal(1_200, 0, 200, sizes)[0])["holdout_known"] == 100
    assert counts(deal(1_170, 0, 200, sizes)[0]) | {"train": 900, "holdout_known": 90} == counts(
        deal(1_170, 0, 200, sizes)[0]
    )


def test_the_holdout_borrows_at_most_a_tenth_of_training() -> None:
    sizes = SIZES | {"train": 1_000, "val": 0, "calibration": 0, "batch_known": 200, "holdout_known": 400}
    splits, in_test = deal(1_000, 200, 200, sizes)
    assert (~in_test[splits["holdout_known"]]).sum() == 100
    assert len(splits["train"]) == 900


def test_what_was_scaled_down_is_said_in_numbers() -> None:
    splits, _ = deal(500, 0, 60, SIZES | {"train": 700, "val": 100, "batch_known": 100, "holdout_known": 100})
    assert counts(splits) == {"train": 300, "val": 50, "calibration": 50, "batch_known": 50, "batch_novel": 40,
                              "holdout_known": 50, "holdout_novel": 20}  # fmt: skip
    assert splits.warnings == (
        "scaled down to the 500 images there are: 350 of 700 to train on, 50 of 100 to validate with, "
        "50 of 100 known in the batch, 50 of 100 known for the holdout",
        "scaled down to the 60 images there are: 40 of 80 novel in the batch, 20 of 40 novel for the holdout",
        "300 of 350 images are trained on: 50 are kept to compare the batch with",
    )


def test_where_everything_fits_nothing_is_said() -> None:
    splits, _ = deal(730, 0, 120, SIZES | {"calibration": 0})
    assert splits.warnings == ()


@pytest.mark.parametrize("test", [0, 300])
def test_too_many_calibration_images_are_one_sentence(test: int) -> None:
    with pytest.raises(UserError) as caught:
        deal(1_000, test, 200, SIZES | {"calibration": 251})
    assert str(caught.value) == (
        "251 calibration images leave too little of 500 training images; "
        "set data.calibration lower or add labelled images"
    )
    deal(1_000, test, 200, SIZES | {"calibration": 250})


@pytest.mark.parametrize("test", [0, 300])
@pytest.mark.parametrize("novel", [0, 50])
def test_a_batch_without_novel_images_is_possible(test: int, novel: int) -> None:
    splits, _ = deal(900, test, novel, SIZES | {"batch_novel": 0})
    assert len(splits["batch_novel"]) == 0
    assert len(splits["batch_known"]) == 100
    assert len(splits["holdout_novel"]) == min(novel, 40)


@pytest.mark.parametrize("test", [0, 25])
def test_every_part_is_a_random_draw_that_prefers_nobody(test: int) -> None:
    """Over 2,000 seeds every image is in every part about equally often, and no two images keep to each other."""
    sizes = {"train": 20, "val": 8, "calibration": 4, "batch_known": 10, "batch_novel": 6, "holdout_known": 7,
             "holdout_novel": 4}  # fmt: skip
    seeds, labeled, novel = 2_000, 50, 12
    seen = {name: np.zeros(labeled + test if name in KNOWN else novel) for name in SIZES}
    together = 0
    for seed in range(seeds):
        splits, in_test = deal(labeled, test, novel, sizes, seed)
        for name in SIZES:
            seen[name][splits[name]] += 1
        together += {0, 1} <= set(splits["train"].tolist())
    for name, times in seen.items():
        candidates = times
        if test and name in KNOWN:
            candidates = times[in_test] if name.endswith("_known") else times[~in_test]
        share = candidates.sum() / seeds / len(candidates)
        chi_square = ((candidates - seeds * share) ** 2).sum() / (seeds * share * (1 - share))
        freedom = len(candidates) - 1
        assert abs(chi_square - freedom) < 5 * np.sqrt(2 * freedom), name
    assert together / seeds == pytest.approx(16 * 15 / (50 * 49), abs=0.03)


@given(labeled=st.integers(0, 3_000), test=st.integers(0, 500), novel=st.integers(0, 500), inbox=st.booleans())
@example(labeled=100, test=1, novel=0, inbox=False)
def test_the_sizes_for_ones_own_images_fit_what_there_is(labeled: int, test: int, novel: int, inbox: bool) -> None:
    sizes = own_sizes(labeled, test, novel, inbox=inbox)
    assert set(sizes) == set(SIZES)
    assert min(sizes.values()) >= 0
    if inbox:  # there the batch is what lies in the inbox, and all labelled images serve to know the known
        labeled, test = labeled + test, 0
        assert sizes["train"] + sizes["val"] == labeled
        assert sizes["batch_known"] == sizes["batch_novel"] == sizes["holdout_known"] == sizes["holdout_novel"] == 0
    splits, _ = deal(labeled, test, novel, sizes)
    assert not [warning for warning in splits.warnings if "scaled down" in warning or "stay together" in warning]
    assert counts(splits) == sizes | {"train": sizes["train"] - sizes["calibration"]}


def test_ones_own_images_are_dealt_in_tenths_and_fifths() -> None:
    assert own_sizes(1_000, 0, 100, inbox=False) == {
        "train": 540, "val": 60, "calibration": 60, "batch_known": 200, "batch_novel": 50, "holdout_known": 200,
        "holdout_novel": 50,
    }  # fmt: skip
    with_test = own_sizes(1_000, 300, 100, inbox=False)
    assert (with_test["train"], with_test["batch_known"], with_test["holdout_known"]) == (900, 150, 150)


def test_corrupted_images_and_their_clean_versions_are_never_both_used() -> None:
    known = pool(1_000)
    stays, novel = set_apart(known, known, 300, seed=0)
    assert (len(novel), stays.sum()) == (300, 700)
    assert not stays[novel].any()
    again, other = (set_apart(known, known, 300, seed)[1] for seed in (0, 1))
    assert (again == novel).all()
    assert len(set(other.tolist()) & set(novel.tolist())) < 150, "another seed, another draw"
    more = set_apart(known, known, 400, seed=0)[1]
    assert set(novel.tolist()) <= set(more.tolist()), "a larger batch has those of the smaller"


def test_only_some_images_have_a_corrupted_version() -> None:
    known, tests = pool(1_000), pool(1_000).take(np.arange(600, 1_000))
    stays, novel = set_apart(known, tests, 300, seed=0)
    assert len(novel) == 300
    assert set(known.ids[~stays]) == set(tests.ids[novel])
    assert stays[:600].all()


def test_half_of_the_images_stay_known_whatever_is_asked_for() -> None:
    stays, novel = set_apart(pool(100), pool(100), 90, seed=0)
    assert (len(novel), stays.sum()) == (50, 50)
    stays, novel = set_apart(pool(100), pool(100), 0, seed=0)
    assert (len(novel), stays.sum()) == (0, 100)


def test_a_patients_images_are_corrupted_together() -> None:
    known = pool(120, np.arange(120) // 7)
    stays, novel = set_apart(known, known, 40, seed=0)
    assert not set(known.groups[novel]) & set(known.groups[stays])
    assert 34 <= len(novel) <= 40
