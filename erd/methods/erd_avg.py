"""ERD whose members are averages over their epochs instead of the single best one.

The best epoch on V is one noisy choice out of few, and each epoch has forgotten other images of the batch. An average
needs no choice and no extra training. Score as ERD: mean pairwise TV, larger = more novel.

- "erd-avg": the softmax, averaged over the later half of the epochs: what the product does by default for small nets.
- "erd-avg-weights": the weights, averaged over all epochs (SWA, Izmailov et al. 2018).
- "erd-avg-ema": a running average of the weights over about `finetune.ema_steps` steps.
- "erd++-avg": random weights, as ERD++, with the softmax averaged over the later half of the epochs.
"""

from erd.methods import Data, Detector, method
from erd.methods.erd import PAPER, members

OURS = f"after {PAPER}; averaged here"
FROM_CLASSIFIER = ("train", "val", "classifier", "batch")


@method(
    "erd-avg",
    paper=OURS,
    formula="mean over i < j of TV(f̄_i(x), f̄_j(x)); f̄ = mean softmax of the later half of the epochs",
    setting="semi-supervised",
    sees=FROM_CLASSIFIER,
)
def softmax_average(data: Data) -> Detector:
    return members(data, keep="softmax-average")


@method(
    "erd-avg-weights",
    paper=OURS,
    formula="mean over i < j of TV(f_i(x), f_j(x)); f with the mean of the weights of all epochs",
    setting="semi-supervised",
    sees=FROM_CLASSIFIER,
)
def weight_average(data: Data) -> Detector:
    return members(data, keep="weight-average")


@method(
    "erd-avg-ema",
    paper=OURS,
    formula="mean over i < j of TV(f_i(x), f_j(x)); f with a running average of the weights",
    setting="semi-supervised",
    sees=FROM_CLASSIFIER,
)
def running_average(data: Data) -> Detector:
    return members(data, keep="ema")


@method(
    "erd++-avg",
    paper=OURS,
    formula="as erd-avg, from random weights",
    setting="semi-supervised",
    sees=("train", "val", "batch"),
)
def softmax_average_from_scratch(data: Data) -> Detector:
    return members(data, keep="softmax-average", random=True)
