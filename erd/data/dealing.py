"""Who goes where: train S, val V, calibration C, batch U and holdout T, disjoint, seeded, never splitting a group.

Public sets are dealt as one pool: what is promised about flags rests on C and the known images of U being alike, and
official test parts are not like their training parts (other writers, other years). Of a user's own images with a test
part, U and T come from that. All images of a group (a patient) go to the same part, so that nobody is recognised
instead of diagnosed.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from erd.base.errors import UserError
from erd.base.seeds import derive
from erd.data.images import Images
from erd.settings.scenarios import held_out

KNOWN, NOVEL = 0, 1
CALIBRATION = ("calibration", "clean")
# The parts, in words that follow a number of images.
WORDS = {"train": "to train on", "val": "to validate with", "calibration": "to compare with",
         "clean": "to compare later images with", "batch": "in the batch", "batch_known": "known in the batch",
         "batch_novel": "novel in the batch", "holdout": "in the holdout",
         "holdout_known": "known for the holdout", "holdout_novel": "novel for the holdout"}  # fmt: skip
# Flags at a false discovery rate of 5% need 1 / (5% × share) images to compare with; half of C is what they have.
TO_FLAG_A_TENTH = 400


@dataclass(frozen=True)
class Splits:
    """Rows of known images (`train`, `val`, `calibration`, `clean`, `*_known`) and of novel ones (`*_novel`)."""

    parts: Mapping[str, np.ndarray]
    warnings: tuple[str, ...]

    def __getitem__(self, part: str) -> np.ndarray:
        return self.parts[part]


def split(
    known: Images,
    known_test: np.ndarray,
    novel: Images,
    sizes: Mapping[str, int],
    seed: int,
    *,
    audited: np.ndarray | None = None,
    picked: np.ndarray | None = None,
) -> Splits:
    """Deal out the images of the known classes (`known_test` marks what only U and T may have) and the novel ones.

    `sizes` are wishes: too few images scale them down, with a warning. Calibration comes out of `train`, and so does
    the part of the holdout that there are no images left for (at most a tenth of `train`), because both are needed
    more than the last few training images. `audited` images are dealt to calibration before all others, the latest
    first: drawn at random from what came in lately, they are the most like what comes in next. `picked` images, which
    were labelled because they looked odd, are not like that, and never serve for calibration: they are trained on
    instead. Most images of a class that is new are such ones.

    The order of dealing is by a hash of the seed and the group's name. So it is random, and a set that grows keeps
    most images where they were: V stays unseen by last week's classifier.
    """
    sizes, warnings = _fit(sizes, labeled=int((~known_test).sum()), test=int(known_test.sum()), novel=len(novel))
    # One deal where there is no test part, otherwise one for each part of the source.
    streams = {"batch": (sizes["batch_known"], sizes["batch_novel"]),
               "holdout": (sizes["holdout_known"], sizes["holdout_novel"])}  # fmt: skip
    labeled = {name: (sizes[name], 0) for name in ("calibration", "clean", "val", "train")}
    groups = np.concatenate([known.groups, novel.groups])
    kind = np.repeat([KNOWN, NOVEL], [len(known), len(novel)])
    if known_test.any():
        borrowed = sizes["holdout_borrowed"]
        streams["holdout"] = (sizes["holdout_known"] - borrowed, sizes["holdout_novel"])
        is_labeled = np.concatenate([~known_test, np.zeros(len(novel), bool)])
        is_stream = ~is_labeled & ~np.isin(groups, groups[is_labeled])
        first = _deal(groups, kind, is_labeled, {"borrowed": (borrowed, 0)} | labeled, seed)
        second = _deal(groups, kind, is_stream, streams, seed)
        rows = first | second
        rows["holdout"] = np.sort(np.concatenate([rows["holdout"], rows.pop("borrowed")]))
    else:
        early = [] if audited is None else known.groups[audited][::-1].tolist()
        odd = set() if picked is None else set(known.groups[picked]) - set(early)
        quotas = labeled | streams if early else streams | labeled  # audited images are no batch to try things on
        rows = _deal(groups, kind, np.ones(len(groups), bool), quotas, seed, early, odd)

    parts = {name: rows[name][kind[rows[name]] == KNOWN] for name in labeled}
    for name in streams:
        parts[f"{name}_known"] = rows[name][kind[rows[name]] == KNOWN]
        parts[f"{name}_novel"] = rows[name][kind[rows[name]] == NOVEL] - len(known)
    short = {name: len(part) for name, part in parts.items() if len(part) < 0.95 * sizes[name]}
    warnings += [
        f"{n:,} images {WORDS[name]}, not {sizes[name]:,}: those of a group stay together" for name, n in short.items()
    ]
    return Splits(parts, tuple(warnings))


def in_words(sizes: Mapping[str, int]) -> str:
    """How many images each part has; parts without any are left out."""
    return ", ".join(f"{count:,} {WORDS[name]}" for name, count in sizes.items() if count)


def set_apart(known: Images, pool: Images, wanted: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Which known images stay known (a mask), and which of `pool`, the same images, are to be novel (rows).

    Novel images that are known ones corrupted: who has seen the one has seen much of the other, so nobody is on both
    sides. At most half of the images are novel. The choice is by a hash of the seed and the group's name, as in
    `split`, and the same whatever the corruption.
    """
    counts = dict(zip(*(column.tolist() for column in np.unique(pool.groups, return_counts=True)), strict=True))
    room, chosen = min(wanted, len(known) // 2), []
    for name in sorted(counts, key=lambda name: derive(seed, "apart", name)):
        if counts[name] <= room:
            chosen.append(name)
            room -= counts[name]
    return ~np.isin(known.groups, chosen), np.flatnonzero(np.isin(pool.groups, chosen))


def own_sizes(
    labeled: int,
    test: int,
    novel: int,
    *,
    inbox: bool,
    encoded: bool = False,
    asked: Mapping[str, int | None] | None = None,
) -> dict[str, int]:
    """What a user's own images are dealt to where no size is `asked` for: a tenth each to V and C, a fifth to U and T
    each. A batch or a holdout that is asked for comes first, the rest is dealt from what that leaves.

    With an inbox the batch is there already, and all labelled images serve to know the known. There C is larger where
    that takes no more than two fifths, because with fewer images to compare with next to nothing could be flagged.
    On an encoder's features (`encoded`) a classifier takes few images, and what is not hidden of C speaks for the known
    as S does: it is two fifths.
    """
    everything = labeled + test
    if inbox:
        calibration = max(everything // 10, min(TO_FLAG_A_TENTH, 2 * everything // 5))
        if encoded:
            calibration = held_out(everything)
        return {"train": everything - everything // 10, "val": everything // 10, "calibration": calibration,
                "batch_known": 0, "batch_novel": 0, "holdout_known": 0, "holdout_novel": 0}  # fmt: skip
    known = _two(test or labeled, test // 2 if test else labeled // 5, asked, "known")
    unknown = _two(novel, novel // 2, asked, "novel")
    left = max(0, labeled - (0 if test else sum(known)))
    val = (asked or {}).get("val")
    train = max(0, left - (left // 10 if val is None else val))
    calibration = min(held_out(left), train // 2) if encoded else left // 10
    return {"train": train, "val": left // 10, "calibration": calibration,
            "batch_known": known[0], "batch_novel": unknown[0],
            "holdout_known": known[1], "holdout_novel": unknown[1]}  # fmt: skip


def _two(have: int, usual: int, asked: Mapping[str, int | None] | None, kind: str) -> tuple[int, int]:
    """Images of a kind in the batch and in the holdout: as asked, else the usual number, or what the other leaves."""
    batch, holdout = ((asked or {}).get(f"{part}_{kind}") for part in ("batch", "holdout"))
    if batch is None:
        batch = min(usual, max(0, have - (holdout or 0)))
    if holdout is None:
        holdout = min(usual, max(0, have - batch))
    return batch, holdout


def _fit(sizes: Mapping[str, int], *, labeled: int, test: int, novel: int) -> tuple[dict[str, int], list[str]]:
    """The wishes made to fit what there is, and in words what had to give."""
    fitted, warnings = dict(sizes), []

    def shrink(names: tuple[str, ...], have: int) -> None:
        want = sum(fitted[name] for name in names)
        if want <= have:
            return
        for name in names:
            fitted[name] = fitted[name] * have // want
        listing = ", ".join(f"{fitted[name]:,} of {sizes[name]:,} {WORDS[name]}" for name in names if sizes[name])
        warnings.append(f"scaled down to the {have:,} images there are: {listing}")

    stream = ("batch_known", "holdout_known")
    if test:
        shrink(("train", "val"), labeled)
    names, have = (stream, test) if test else (("train", "val", *stream), labeled)
    missing = max(0, sum(fitted[name] for name in names) - have)
    borrowed = min(missing, fitted["train"] // 10, fitted["holdout_known"])
    if not test and borrowed < missing:  # one pool that is too small for all: nobody borrows, everybody gets less
        borrowed = 0
    fitted["holdout_known"] -= borrowed
    shrink(names, have)
    fitted["holdout_known"] += borrowed
    fitted["holdout_borrowed"] = borrowed
    shrink(("batch_novel", "holdout_novel"), novel)
    calibration = fitted["calibration"] + fitted.setdefault("clean", 0)
    taken = {"to compare the batch with": calibration, "for the holdout": fitted["holdout_borrowed"]}
    if calibration > fitted["train"] // 2:
        raise UserError(
            f"{calibration:,} calibration images leave too little of {fitted['train']:,} training images; "
            "set data.calibration lower or add labelled images"
        )
    before = fitted["train"]
    fitted["train"] -= sum(taken.values())
    kept = " and ".join(f"{n:,} are kept {what}" for what, n in taken.items() if n)
    if kept:
        warnings.append(f"{fitted['train']:,} of {before:,} images are trained on: {kept}")
    return fitted, warnings


def _deal(
    groups: np.ndarray,
    kind: np.ndarray,
    eligible: np.ndarray,
    quotas: Mapping[str, tuple[int, int]],
    seed: int,
    early: Sequence[str] = (),
    odd: Collection[str] = (),
) -> dict[str, np.ndarray]:
    """Deal whole groups in random order, each to the first part whose quota (known, novel) still has room for it;
    `early` groups come first, in their order; `odd` ones are trained on where calibration would have had them.

    A part with a novel quota of 0 takes a group's known images and leaves its novel ones unused.
    """
    rows = np.flatnonzero(eligible)
    names, group_of_row = np.unique(groups[rows], return_inverse=True)
    members: list[list[int]] = [[] for _ in range(group_of_row.max(initial=-1) + 1)]
    for row, group in zip(rows.tolist(), group_of_row.tolist(), strict=True):
        members[group].append(row)
    is_novel = (kind == NOVEL).tolist()
    room = {name: list(quota) for name, quota in quotas.items()}
    dealt: dict[str, list[int]] = {name: [] for name in quotas}
    turn = {name: place - len(early) for place, name in reversed(list(enumerate(early)))}
    for group in sorted(
        range(len(names)), key=lambda i: turn.get(str(names[i]), derive(seed, "splits", str(names[i])))
    ):
        novel = sum(is_novel[row] for row in members[group])
        known = len(members[group]) - novel
        wanted = {name: novel if quota[NOVEL] else 0 for name, quota in quotas.items()}
        open_to = [name for name, left in room.items()
                   if known <= left[KNOWN] and wanted[name] <= left[NOVEL] and known + wanted[name]]  # fmt: skip
        if names[group] in odd and open_to and open_to[0] in CALIBRATION:
            # Not to what comes next, which is V: it would be filled with odd images.
            open_to = sorted((name for name in open_to if name not in CALIBRATION), key=lambda name: name != "train")
        for name in open_to[:1]:
            dealt[name] += [row for row in members[group] if wanted[name] or not is_novel[row]]
            room[name][KNOWN] -= known
            room[name][NOVEL] -= wanted[name]
    return {name: np.sort(np.array(rows, np.int64)) for name, rows in dealt.items()}
