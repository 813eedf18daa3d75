"""How near we are to the machine's limit, and to what one would write oneself: everything side by side in one run.

    python benchmarks/speed.py --data DIR            # a table; half an hour on two cores
    python benchmarks/speed.py --only b --only d --json
    python benchmarks/speed.py --quick --check       # what got slower since benchmarks/baseline.json; exit 1 if so
    python benchmarks/speed.py --data DIR --keep --output docs/speed.md

Each number is a ratio of two things measured in turn, again and again, on the same machine: the median over the
repetitions, with the smallest and the largest. Where a goal is in seconds or gigabytes, those stand beside the ratio.
docs/speed.md says what each part compares and why.
"""

import argparse
import copy
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil  # type: ignore[import-untyped]
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import ConcatDataset, DataLoader, Dataset

import erd
from erd import compute, disagreement, evaluation, files, models, pages, stages
from erd.data import ingest as packing
from erd.data.batches import Mixture, Rows
from erd.data.sources import Images
from erd.ensemble import finetune_member, load_net, save_net
from erd.errors import UserError
from erd.params import Settings
from erd.rundir import RunDir
from erd.scenarios import settings_for
from erd.training import EVAL_BATCH, Examples, Fit, Recipe, fit

HERE = Path(__file__).resolve().parent
BASELINE = HERE / "baseline.json"


@dataclass(frozen=True)
class Goal:
    """What a figure is and what it should be. `bound` is in `unit`, which is the ratio's own where it is ×."""

    what: str
    bound: float
    at_least: bool = False  # else: at most
    unit: str = "×"
    tolerance: float | None = 0.15  # how much worse than the baseline is still noise; None: nothing to compare
    worse: str = "slower"

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {shown(self.bound, self.unit)}"

    def met(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound


GOALS = {
    "a.loop": Goal("ERD end to end, K=5, against the user's loop", 20, at_least=True),
    "a.auroc": Goal("AUROC of the two, difference", 0.005, unit="", tolerance=None),
    "b.mlp": Goal("epoch of an MLP member over its bare matrix products", 1.5),
    "b.resnet20": Goal("training of ResNet20, share of the bare step's speed", 0.9, at_least=True, tolerance=0.07),
    "c.cores": Goal("4 members with 2 workers against 1", 1.8, at_least=True, tolerance=0.1),
    "d.fifty": Goal("score of 50 members against the pairwise form", 10, at_least=True, tolerance=0.25),
    "d.least": Goal("score of 2 to 50 members against the pairwise form, worst", 1, at_least=True, tolerance=0.25),
    "e.images": Goal("cost of twice the images, worst", 2.1, tolerance=0.1),
    "e.members": Goal("cost of twice the members, worst", 2.1, tolerance=0.1),
    "f.score": Goal("peak memory of scoring 1,000,000 images", 1.5, unit=" GB", worse="larger"),
    "f.workers": Goal("copies of the images that a second worker takes", 1, unit=" copies", worse="larger"),
    "g.ingest": Goal("taking in image files against a PIL loop", 1.7, at_least=True),
    "h.flow": Goal("the flow's own time over the bare stages", 15, unit=" s", tolerance=0.3),
    "i.help": Goal("`erd --help`", 0.5, unit=" s", tolerance=0.3),
    "i.import": Goal("`import erd`", 0.5, unit=" s", tolerance=0.3),
}


@dataclass
class Figure:
    """`ratios`, one a repetition, are compared with the baseline; `value` with the goal, the median ratio if None."""

    ratios: list[float]
    value: float | None = None
    details: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    repetitions: int | None = None  # where `ratios` has only the median, the smallest and the largest


@dataclass(frozen=True)
class Asked:
    data: str | None
    repeat: int
    full: bool  # the user's loop once from end to end, for its AUROC
    place: Path


Figures = dict[str, Figure]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PARTS, help="repeatable; default all")
    parser.add_argument("--data", default=os.environ.get("ERD_DATA"), help="folder with fashion_mnist.npz, for (a)")
    parser.add_argument("--repeat", type=int, default=5, help="repetitions of each comparison; default 5")
    parser.add_argument("--quick", action="store_true", help="2 repetitions, and the user's loop is not run in full")
    parser.add_argument("--check", action="store_true", help="compare with the baseline; exit 1 if something is slower")
    parser.add_argument("--keep", action="store_true", help="write what was measured into the baseline")
    parser.add_argument("--output", type=Path, metavar="FILE", help="put the table between the marks of a page")
    parser.add_argument("--json", action="store_true", help="only the JSON object")
    asked = parser.parse_args(argv)
    if asked.output:
        pages.check(asked.output, "speed")
    machine = {"cores": compute.cores(), "torch": torch.__version__, "busy": psutil.cpu_percent(1) / 100}
    notes = []
    if machine["busy"] > 0.1:
        notes.append(f"Something else kept {machine['busy']:.0%} of the cores busy at the start: run it again alone.")
    figures: Figures = {}
    with tempfile.TemporaryDirectory(prefix="erd-speed-") as scratch:
        for part in asked.only or PARTS:
            say(f"({part}) {PARTS[part].__doc__}")
            place = Path(scratch) / part
            place.mkdir()
            repeat = 2 if asked.quick else asked.repeat
            figures |= PARTS[part](Asked(asked.data, repeat, not asked.quick, place))
            shutil.rmtree(place)
    rows = [row(key, figures[key]) for key in GOALS if key in figures]
    report: dict[str, Any] = {"machine": machine, "notes": notes, "figures": rows}
    baseline = files.load_json(BASELINE) if BASELINE.exists() else {}
    if asked.check:
        report |= compared(rows, baseline)
    if asked.keep:
        files.save_json(BASELINE, kept(rows, baseline, machine))
    if asked.output:
        pages.into(asked.output, "speed", "\n".join(table(rows)) + "\n")
    if not asked.json:
        print("\n".join([*table(rows), "", *notes, *(said(report) if asked.check else [])]))
    print(json.dumps(report))
    return 1 if report.get("worse") else 0


def say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


# (a) ------------------------------------------------------------------------------------------------------------------


def end_to_end(asked: Asked) -> Figures:
    """ERD from the pretrained net to the scores, and the user's own loop with as many epochs"""
    # The paper's algorithm on both sides: all of S, the best epoch, nothing hidden in the batch.
    plain = ["detect.calibration=paper", "finetune.keep=best", "data.holdout_known=0", "data.holdout_novel=0"]
    settings, run, note = fmnist(asked, plain)
    stages.pretrain(settings, run)
    labels, epochs = stages.member_labels(settings, run), Recipe.of(settings.finetune).epochs
    images = as_the_user_has_them(run)

    def theirs() -> float:
        _, seconds = users_member(users_net(run), labels[0], images, 1)
        return len(labels) * (epochs * seconds["epoch"] + seconds["score"])

    times = in_turn({"ours": lambda: finetuned_and_scored(settings, run), "user's": theirs}, asked.repeat)
    details: dict[str, Any] = {"seconds": medians(times), "epochs": epochs, "members": len(labels)}
    part = f"Of the user's loop one epoch and one scoring, times {epochs} epochs and {len(labels)} members."
    found = {"a.loop": Figure(over(times, "user's", "ours"), details=details, note=f"{note} {part}".strip())}
    if asked.full and not note:
        started = time.perf_counter()
        scores = users_loop(run, labels, images, epochs)
        details["user's whole loop, seconds"] = round(time.perf_counter() - started, 1)
        novel = stages.truth_of(run.batch) == "novel"
        mine = pd.read_parquet(run.scores)["score"].to_numpy()
        both = {name: evaluation.auroc(s[~novel], s[novel]) for name, s in (("ours", mine), ("user's", scores))}
        found["a.auroc"] = Figure([abs(both["ours"] - both["user's"])], details={"auroc": both})
    return found


def finetuned_and_scored(settings: Settings, run: RunDir) -> float:
    """Seconds from the packed images and the classifier to scores.parquet; nothing is taken from the time before."""
    for folder in (run.root / "members", run.root / "finetune"):
        shutil.rmtree(folder, ignore_errors=True)
    for record in [run.record("score"), *run.record("").parent.glob("finetune-*.json")]:
        record.unlink(missing_ok=True)
    started = time.perf_counter()
    stages.finetune_all(settings, run)
    stages.score(settings, run)
    return time.perf_counter() - started


class UsersSet(Dataset[tuple[Tensor, int]]):
    """A data set as torchvision has it: item by item an array, a PIL image, ToTensor, Normalize."""

    def __init__(self, images: Tensor, labels: Tensor, mean: float, std: float) -> None:
        self.images, self.labels, self.mean, self.std = images, labels, mean, std

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = Image.fromarray(self.images[index].numpy())
        return normalized(to_tensor(image), self.mean, self.std), int(self.labels[index])


def to_tensor(image: Image.Image) -> Tensor:
    """What torchvision's ToTensor does with a PIL image; torchvision itself takes seconds to import."""
    pixels = torch.from_numpy(np.array(image, np.uint8, copy=True))
    pixels = pixels.view(image.size[1], image.size[0], len(image.getbands()))
    return pixels.permute(2, 0, 1).contiguous().to(torch.float32).div(255)


def normalized(pixels: Tensor, mean: float, std: float) -> Tensor:
    """What its Normalize does."""
    means, stds = torch.as_tensor((mean,), dtype=pixels.dtype), torch.as_tensor((std,), dtype=pixels.dtype)
    return pixels.clone().sub_(means.view(-1, 1, 1)).div_(stds.view(-1, 1, 1))


def users_net(run: RunDir) -> nn.Module:
    """The pretrained net as a plain torch module, without our normalisation inside."""
    model, _ = load_net(run.pretrained)
    return model.net


def as_the_user_has_them(run: RunDir) -> dict[str, Any]:
    """Images and labels in memory, and the mean and deviation of S that the classifier was trained with."""
    labeled, batch = packing.read(run.labeled), packing.read(run.batch)
    model, _ = load_net(run.pretrained)
    parts = {name: (labeled.images[labeled.rows(name).rows], labeled.labels_of(name)) for name in ("train", "val")}
    return {**parts, "batch": batch.images.clone(), "mean": model.mean.item(), "std": model.std.item()}


def users_member(net: nn.Module, label: int, given: Mapping[str, Any], epochs: int) -> tuple[Tensor, dict[str, float]]:
    """Fine-tune on S ∪ (U, label), keep the best epoch on V; softmax of U, and seconds of an epoch and of scoring."""

    def users_set(images: Tensor, labels: Tensor) -> UsersSet:
        return UsersSet(images, labels, given["mean"], given["std"])

    batch = users_set(given["batch"], torch.full((len(given["batch"]),), label))
    train_loader: DataLoader[Any] = DataLoader(
        ConcatDataset([users_set(*given["train"]), batch]),
        batch_size=128,
        shuffle=True,
        generator=torch.Generator().manual_seed(label),
    )
    val_loader = DataLoader(users_set(*given["val"]), batch_size=1000)
    batch_loader = DataLoader(batch, batch_size=1000)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    best, best_weights = -1, net.state_dict()
    started = time.perf_counter()
    for _ in range(epochs):
        net.train()
        for images, labels in train_loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(images), labels)
            loss.backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            right = sum((net(images).argmax(1) == labels).sum().item() for images, labels in val_loader)
        if right > best:
            best, best_weights = right, copy.deepcopy(net.state_dict())
    trained = time.perf_counter()
    net.load_state_dict(best_weights)
    net.eval()
    with torch.no_grad():
        softmax = torch.cat([net(images).softmax(1) for images, _ in batch_loader])
    return softmax, {"epoch": (trained - started) / epochs, "score": time.perf_counter() - trained}


def users_loop(run: RunDir, labels: Sequence[int], given: Mapping[str, Any], epochs: int) -> np.ndarray:
    """K members one after another, and the mean distance over their pairs."""
    softmax: list[Tensor] = []
    for label in labels:
        say(f"    the user's member {len(softmax) + 1} of {len(labels)}")
        softmax.append(users_member(users_net(run), label, given, epochs)[0])
    pairs = [(p - q).abs().sum(1) / 2 for i, p in enumerate(softmax) for q in softmax[:i]]
    return torch.stack(pairs).mean(0).numpy()


# (b) ------------------------------------------------------------------------------------------------------------------


def epoch(asked: Asked) -> Figures:
    """one member's epoch on one thread, and the least that it has to compute"""
    with compute.threads(1):
        return mlp_epoch(asked) | resnet_epoch(asked)


def mlp_epoch(asked: Asked, train: int = 25_000, batch: int = 10_000, val: int = 5_000) -> Figures:
    """As the stage trains a member: V evaluated, checkpoint written. The products of V count on both sides."""
    settings = ours(["model.net=mlp", f"finetune.epochs={asked.repeat + 1}"], "fmnist-near")
    images, generator = random_images(train + batch + val, 28), torch.Generator().manual_seed(0)
    labels = torch.randint(5, (train + batch + val,), generator=generator)
    rows = [Rows(part) for part in torch.from_numpy(images).split([train, batch, val])]
    model = models.build("mlp", channels=1, image_size=28, classes=5, seed=0)
    size = settings.finetune.batch_size or 0
    trained_on, evaluated_on = (torch.randn(count, 28 * 28, generator=generator) for count in (train + batch, val))
    ratios = Alternating(lambda: matrix_products(model, trained_on, evaluated_on, size))
    finetune_member(
        model, 0, (rows[0], labels[:train]), [(rows[1], torch.full((batch,), 3, dtype=torch.int8))],
        (rows[2], labels[-val:]), settings.finetune, 0, checkpoint=asked.place / "mlp", on_epoch=ratios.epoch,
    )  # fmt: skip
    return {"b.mlp": Figure([a / b for a, b in ratios.pairs()], details=ratios.details())}


def matrix_products(model: nn.Module, trained_on: Tensor, evaluated_on: Tensor, batch_size: int) -> None:
    """All products of weights with activations and gradients in an epoch on such pixels, and nothing else."""
    weights = [layer.weight.detach() for layer in model.modules() if isinstance(layer, nn.Linear)]
    widths = [len(weight) for weight in weights]
    gradients = [torch.empty_like(weight) for weight in weights]
    for pixels, size, learn in ((trained_on, batch_size, True), (evaluated_on, EVAL_BATCH, False)):
        rooms = {count: [torch.ones(count, width) for width in widths] for count in {size, len(pixels) % size}}
        for part in pixels.split(size):
            values = [part, *rooms[len(part)]]
            for i, weight in enumerate(weights):
                torch.mm(values[i], weight.T, out=values[i + 1])
            for i in reversed(range(len(weights) if learn else 0)):
                torch.mm(values[i + 1].T, values[i], out=gradients[i])
                if i:  # no one asks for the slope of pixels
                    torch.mm(values[i + 1], weights[i], out=values[i])


def resnet_epoch(asked: Asked, steps: int = 16, batch_size: int = 128) -> Figures:
    """Shuffled, flipped and cropped images, curves, checkpoint; without V, since the bare step has none."""
    settings = ours(["model.net=resnet20", f"finetune.epochs={asked.repeat + 1}"], "cifar10-near")
    settings = settings.override({"finetune.batch_size": batch_size})
    images, generator = torch.from_numpy(random_images(steps * batch_size, 32, 3)), torch.Generator().manual_seed(0)
    labels = torch.randint(5, (len(images),), generator=generator)
    model, bare = (models.build("resnet20", channels=3, image_size=32, classes=5, seed=0) for _ in range(2))
    bare.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(bare.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4, fused=True)
    pixels = torch.randn(batch_size, 3, 32, 32).to(memory_format=torch.channels_last)

    def bare_steps() -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            F.cross_entropy(bare.net(pixels), labels[:batch_size]).backward()
            optimizer.step()

    bare.train()
    ratios = Alternating(bare_steps)
    fit(
        model, Examples(Mixture(Rows(images)), labels), Examples(Mixture(Rows(images[:2])), labels[:2]),
        Recipe.of(settings.finetune), generator, watch=lambda model: (0.0, 0.0),
        checkpoint=asked.place / "resnet20", on_epoch=ratios.epoch,
    )  # fmt: skip
    return {"b.resnet20": Figure([b / a for a, b in ratios.pairs()], details=ratios.details())}


class Alternating:
    """Our epochs in turn with something else, which is done after each of them; the first of both warms up."""

    def __init__(self, other: Callable[[], None]) -> None:
        self.other, self.seconds, self.last = other, list[tuple[float, float]](), time.perf_counter()

    def epoch(self, record: dict[str, float]) -> None:
        done = time.perf_counter()
        self.other()
        after = time.perf_counter()
        self.seconds.append((done - self.last, after - done))
        self.last = time.perf_counter()

    def pairs(self) -> list[tuple[float, float]]:
        return self.seconds[1:]

    def details(self) -> dict[str, Any]:
        epochs, others = zip(*self.pairs(), strict=True)
        return {"seconds": {"epoch": round(statistics.median(epochs), 3), "floor": round(statistics.median(others), 3)}}


# (c) ------------------------------------------------------------------------------------------------------------------


def cores(asked: Asked) -> Figures:
    """members side by side in two workers, and one after another in one"""
    if compute.cores() < 2:
        say("    this machine has one core: nothing to compare")
        return {}
    # Four: five members on two cores cannot be faster than 5/3, however good the workers are.
    settings, run, _ = fmnist(asked, ["finetune.members=4", "data.holdout_known=0", "data.holdout_novel=0"], real=False)
    untrained(settings, run)

    ways = {
        f"{count} workers": partial(finetuned_and_scored, settings.override({"run.workers": count}), run)
        for count in (1, 2)
    }
    times = in_turn(ways, asked.repeat)
    details = {"seconds": medians(times)}
    return {"c.cores": Figure(over(times, "1 workers", "2 workers"), details=details)}


# (d) ------------------------------------------------------------------------------------------------------------------


def scoring(asked: Asked, members: Sequence[int] = (2, 3, 4, 5, 7, 10, 15, 20, 30, 50), count: int = 10_000) -> Figures:
    """the score of a batch by members, and pair by pair; one thread, 10 classes"""
    found: dict[int, list[float]] = {}
    with compute.threads(1):
        for number in members:
            generator = torch.Generator().manual_seed(number)
            softmax = torch.randn(number, count, 10, generator=generator).mul_(3).softmax(-1)
            calls = max(1, 300 // number**2)  # so long that the clock is no matter

            def again(form: Callable[[Tensor], Tensor], softmax: Tensor = softmax, calls: int = calls) -> float:
                return timed(lambda: [form(softmax) for _ in range(calls)])

            ways = {"ours": lambda: again(disagreement.disagreement), "pairs": lambda: again(disagreement.pairwise)}
            found[number] = over(in_turn(ways, max(5, asked.repeat), quietly=True), "pairs", "ours")
    worst = min(found, key=lambda number: statistics.median(found[number]))
    ratios = {str(number): round(statistics.median(values), 2) for number, values in found.items()}
    say(f"    {ratios}")
    return {
        "d.fifty": Figure(found[max(members)], details={"members": ratios}),
        "d.least": Figure(found[worst], details={"members": worst}),
    }


# (e) ------------------------------------------------------------------------------------------------------------------


def growth(
    asked: Asked, images: Sequence[int] = (10_000, 20_000, 40_000), members: Sequence[int] = (2, 4, 8)
) -> Figures:
    """members fine-tuned for an epoch one after another, and scored: twice the images, twice the members"""
    ways: dict[str, Callable[[], float]] = {}
    for count in images:
        for number in members if count == images[0] else members[:1]:
            overrides = [f"finetune.members={number}", "finetune.epochs=1", "run.runner=serial", "model.net=mlp"]
            settings = ours(overrides, "fmnist-near")
            run = random_run(asked.place / f"{count}-{number}", train=count, val=count // 10, batch=count, classes=10)
            untrained(settings, run)
            ways[f"{count} images, {number} members"] = partial(finetuned_and_scored, settings, run)
    times = in_turn(ways, asked.repeat)

    def worst(names: list[str]) -> Figure:
        steps = [over(times, large, small) for small, large in pairwise(names)]
        details = {"doublings": [round(statistics.median(step), 2) for step in steps], "seconds": medians(times)}
        return Figure(max(steps, key=statistics.median), details=details)

    return {
        "e.images": worst([f"{count} images, {members[0]} members" for count in images]),
        "e.members": worst([f"{images[0]} images, {number} members" for number in members]),
    }


# (f) ------------------------------------------------------------------------------------------------------------------


def memory(asked: Asked, images: int = 1_000_000, members: int = 5) -> Figures:
    """memory to score a batch of 1,000,000 images of 28×28, and to fine-tune on it with one worker and with two"""
    if not Path("/proc/self/smaps_rollup").exists():
        say("    this needs Linux, which says how much memory processes share: left out")
        return {}
    overrides = [f"finetune.members={members}", "finetune.epochs=1", "model.net=mlp"]
    settings = ours(overrides, "fmnist-near")
    run = random_run(asked.place / "run", train=5_000, val=1_000, batch=images, calibration=2_500, classes=10)
    untrained(settings, run, with_members=True)
    size = run.batch.stat().st_size
    repetitions = min(asked.repeat, 2)  # memory hardly varies, and time does not matter
    resident = [peak(scored_here, settings, run)["resident"] for _ in range(repetitions)]
    shared: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(repetitions):
        for workers, found in shared.items():
            chosen = settings.override({"run.workers": workers, "finetune.members": 2})
            found.append(peak(stages.finetune_all, chosen, run)["shared"])
    # Two workers that map the same file have it in memory once. Their resident sizes count it twice, so that for them
    # the proportional size (PSS) is summed up, in which each has half of it. For one process the resident size is the
    # larger one, and counts pages of the file that the system could take back at any time.
    extra = [(two - one) / size for one, two in zip(shared[1], shared[2], strict=True)]
    return {
        "f.score": Figure(
            [value / size for value in resident], max(resident) / 1e9, {"images_gigabytes": round(size / 1e9, 3)}
        ),
        "f.workers": Figure(
            [two / one for one, two in zip(shared[1], shared[2], strict=True)],
            max(extra),
            {"gigabytes": {f"{n} workers": round(max(found) / 1e9, 3) for n, found in shared.items()}},
        ),
    }


def scored_here(settings: Settings, run: RunDir) -> None:
    run.record("score").unlink(missing_ok=True)
    stages.score(settings, run)


def peak(work: Callable[..., object], settings: Settings, run: RunDir) -> dict[str, float]:
    """Bytes at the highest point of a process of its own: resident, and with all that it starts, shared pages once."""
    for folder in (run.root / "members", run.root / "finetune") if work is stages.finetune_all else ():
        shutil.rmtree(folder, ignore_errors=True)
    here, there = multiprocessing.get_context("spawn").Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=_tell_peak, args=(there, work, settings, run))
    process.start()
    there.close()
    highest = 0
    while not here.poll(0.2):  # not more often: to ask takes time from the one who is asked
        highest = max(highest, proportional(process.pid or 0))
    resident = here.recv()
    process.join()
    return {"resident": resident, "shared": highest}


def _tell_peak(there: Any, work: Callable[..., object], settings: Settings, run: RunDir) -> None:
    work(settings, run)
    # Not getrusage: its maximum begins with the size of the process that started this one.
    status = Path("/proc/self/status").read_text()
    there.send(1024 * int(status.split("VmHWM:")[1].split()[0]))


def proportional(pid: int) -> int:
    total = 0
    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        try:
            total += process.memory_full_info().pss
        except psutil.Error:  # ended in between
            continue
    return total


# (g), (h), (i) --------------------------------------------------------------------------------------------------------


def ingest(asked: Asked, count: int = 200) -> Figures:
    """image files taken in on all cores, and by a PIL loop (benchmarks/ingest.py)"""
    ingesting = beside("ingest")
    ingesting.make(asked.place, count)
    ways = {
        "all cores": lambda: timed(lambda: ingesting.take(asked.place, ingesting.SIDE)),
        "PIL loop": lambda: timed(lambda: ingesting.plain(asked.place)),
    }
    times = in_turn(ways, asked.repeat)
    rates = {way: round(count / statistics.median(values), 1) for way, values in times.items()}
    return {"g.ingest": Figure(over(times, "PIL loop", "all cores"), details={"images_per_second": rates})}


def overhead(asked: Asked) -> Figures:
    """`erd run` with Prefect, MLflow and DVC, and the bare stages (benchmarks/overhead.py)"""
    command = [sys.executable, str(HERE / "overhead.py"), "--json", "--repetitions", str(asked.repeat)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])["rows"][0]
    # Without `make up` there is a temporary server; the slower of the two counts.
    extra = max(found["temporary server"], found["running server"], key=lambda way: way["overhead_seconds"])
    ratios = [1 + extra[name] / found["bare_seconds"] for name in ("overhead_seconds", "from", "to")]
    return {"h.flow": Figure(ratios, extra["overhead_seconds"], found, repetitions=asked.repeat)}


def startup(asked: Asked) -> Figures:
    """`erd --help` and `import erd` in a new process, and a Python that does nothing"""
    commands = {
        "nothing": ["-c", "pass"],
        "help": ["-m", "erd.cli", "--help"],
        "import": ["-c", "import erd"],
    }

    def started(arguments: list[str]) -> float:
        environment = os.environ | {"PYTHONPATH": str(Path(erd.__file__).resolve().parents[1])}
        command = [sys.executable, *arguments]
        return timed(lambda: subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True))

    ways = {name: partial(started, arguments) for name, arguments in commands.items()}
    times = in_turn(ways, 2 * asked.repeat, quietly=True)
    seconds = medians(times)
    return {
        f"i.{name}": Figure(over(times, name, "nothing"), seconds[name], {"seconds": seconds})
        for name in ("help", "import")
    }


PARTS: dict[str, Callable[[Asked], Figures]] = {
    "a": end_to_end,
    "b": epoch,
    "c": cores,
    "d": scoring,
    "e": growth,
    "f": memory,
    "g": ingest,
    "h": overhead,
    "i": startup,
}


# Images, runs and clocks ----------------------------------------------------------------------------------------------


def ours(overrides: Sequence[str], scenario: str, data: str | None = None) -> Settings:
    return settings_for(params=HERE.parent / "params.yaml", scenario=scenario, data=data, overrides=overrides)


def fmnist(asked: Asked, overrides: list[str], real: bool = True) -> tuple[Settings, RunDir, str]:
    """The run of fmnist-near up to its packed images; random ones, and a sentence about it, where it is not there."""
    settings, run = ours(overrides, "fmnist-near", asked.data), RunDir(asked.place / "fmnist-near")
    if real:
        try:
            stages.ingest(settings, run)
            return settings, run, ""
        except UserError as error:
            say(f"    {error}")
    data = settings.data
    hidden = settings.detect.calibration == "mixed"
    run = random_run(
        run.root, train=data.train or 0, val=data.val or 0, batch=(data.batch_known or 0) + (data.batch_novel or 0),
        calibration=(data.calibration or 0) * hidden,
    )  # fmt: skip
    return settings, run, "Fashion-MNIST is not in --data: random images of its shape, so no AUROC."


def random_images(count: int, side: int, channels: int = 0) -> np.ndarray:
    shape = (count, side, side, channels) if channels else (count, side, side)
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def random_run(
    root: Path, *, train: int, val: int, batch: int, calibration: int = 0, classes: int = 5, side: int = 28
) -> RunDir:
    """A run's packed images, all noise: what costs time and memory does not look at them."""

    def noise(count: int) -> Images:
        names = np.arange(count).astype(str)
        return Images(random_images(count, side), np.arange(count) % classes, names, names)

    part = np.repeat(np.arange(4), [train, val, calibration - calibration // 2, calibration // 2])
    truth = np.where(np.arange(batch) % 2, "novel", "known")
    names = [f"class {c}" for c in range(classes)]
    collected = packing.Collected(names, noise(len(part)), part, noise(batch), truth, noise(0), truth[:0])
    run = RunDir(root)
    packing.write(collected, run)
    return run


def untrained(settings: Settings, run: RunDir, with_members: bool = False) -> None:
    """A classifier with the weights it was drawn with, and members like it: where only the cost counts."""
    facts = {"classes": stages.known_classes(run)}
    side = packing.read(run.labeled).images.shape[1]
    for path in [run.pretrained, *(map(run.member, stages.member_labels(settings, run)) if with_members else [])]:
        model = models.build(
            settings.model.net or "", channels=1, image_size=side, classes=len(facts["classes"]), seed=0
        )
        save_net(path, model, Fit([model.state_dict()]), facts)
        files.save_json(run.history(path), [])


def beside(name: str) -> Any:
    """Another benchmark of this folder, which is no package."""
    if str(HERE) not in sys.path:
        sys.path.insert(0, str(HERE))
    return __import__(name)


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def in_turn(ways: Mapping[str, Callable[[], float]], repeat: int, quietly: bool = False) -> dict[str, list[float]]:
    """Seconds of each way, one repetition of all after another; a first one warms up and does not count."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for repetition in range(repeat + 1):
        for way, work in ways.items():
            taken = work()
            if repetition:
                times[way].append(taken)
                if not quietly:
                    say(f"    {repetition} of {repeat}, {way}: {taken:.2f} s")
    return times


def over(times: Mapping[str, list[float]], above: str, below: str) -> list[float]:
    return [a / b for a, b in zip(times[above], times[below], strict=True)]


def medians(times: Mapping[str, list[float]]) -> dict[str, float]:
    return {way: round(statistics.median(values), 3) for way, values in times.items()}


# What is said ---------------------------------------------------------------------------------------------------------


def row(key: str, figure: Figure) -> dict[str, Any]:
    goal, ratio = GOALS[key], statistics.median(figure.ratios)
    value = ratio if figure.value is None else figure.value
    return {
        "key": key,
        "what": goal.what,
        "ratio": rounded(ratio),
        "low": rounded(min(figure.ratios)),
        "high": rounded(max(figure.ratios)),
        "repetitions": figure.repetitions or len(figure.ratios),
        "value": rounded(value),
        "unit": goal.unit.strip(),
        "goal": str(goal),
        "met": goal.met(value),
        "note": figure.note,
        "details": figure.details,
    }


def rounded(value: float) -> float:
    return float(f"{value:.4g}")


def shown(value: float, unit: str) -> str:
    return f"{value:.3g}{unit}"


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Markdown, which reads well enough in a terminal."""
    lines = ["| | what | goal | measured | ratio (from – to) | met |", "|---|---|---|---|---|---|"]
    for one in rows:
        spread = f"{one['ratio']:.3g} ({one['low']:.3g} – {one['high']:.3g})"
        measured = shown(one["value"], GOALS[one["key"]].unit)
        met = "yes" if one["met"] else "**no**"
        lines.append(f"| {one['key'][0]} | {one['what']} | {one['goal']} | {measured} | {spread} | {met} |")
    notes = [f"({one['key'][0]}) {one['note']}" for one in rows if one["note"]]
    return [*lines, "", *notes] if notes else lines


def compared(rows: Sequence[Mapping[str, Any]], baseline: Mapping[str, Any]) -> dict[str, list[str]]:
    """What is worse and what is better than the baseline by more than its tolerance, in words."""
    found: dict[str, list[str]] = {"worse": [], "better": [], "new": []}
    for one in rows:
        goal, before = GOALS[one["key"]], baseline.get("figures", {}).get(one["key"])
        if goal.tolerance is None:
            continue
        if before is None:
            found["new"].append(f"({one['key'][0]}) {one['what']}: no baseline yet, --keep writes it")
            continue
        was, now, tolerance = before["ratio"], one["ratio"], before["tolerance"]
        change = was / now if goal.at_least else now / was  # above 1: worse
        better = {"slower": "faster", "larger": "smaller"}[goal.worse]
        how, word, share = ("worse", goal.worse, change - 1) if change > 1 else ("better", better, 1 / change - 1)
        if share > tolerance:
            numbers = f"the ratio was {was:.3g} and is {now:.3g}"
            found[how].append(
                f"({one['key'][0]}) {one['what']}: {share:.0%} {word} ({numbers}; {tolerance:.0%} is noise)"
            )
    return found


def said(report: Mapping[str, list[str]]) -> list[str]:
    lines = [f"{how}: {line}" for how in ("worse", "better", "new") for line in report[how]]
    return lines or ["Nothing is slower than in the baseline."]


def kept(rows: Sequence[Mapping[str, Any]], before: Mapping[str, Any], machine: Mapping[str, Any]) -> dict[str, Any]:
    """The baseline with what was measured now; parts that were not, and tolerances set by hand, stay."""
    figures = dict(before.get("figures", {}))
    for one in rows:
        tolerance = figures.get(one["key"], {}).get("tolerance", GOALS[one["key"]].tolerance)
        if tolerance is not None:
            figures[one["key"]] = {"ratio": one["ratio"], "tolerance": tolerance}
    return {"machine": dict(machine), "figures": {key: figures[key] for key in GOALS if key in figures}}


if __name__ == "__main__":
    sys.exit(main())
