"""What benchmarks/speed.py compares: each file of this folder is a part, and a new one is found by itself.

    def measure(asked: Asked) -> Figures:
        times = in_turn({"ours": …, "theirs": …}, asked.repeat)
        return {"j.key": Figure(over(times, "ours", "theirs"), details={"seconds": medians(times)})}

    CASE = Case("j", "what is done, and what it is compared with", {"j.key": Goal("what the ratio is", 1.5)}, measure)

`python benchmarks/speed.py --only j --keep` then writes its baseline, and docs/speed.md says what it compares and why.
"""

import importlib
import pkgutil

from measuring import Case


def found() -> dict[str, Case]:
    """All of them by their letter, in its order."""
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    cases: list[Case] = sorted((module.CASE for module in modules), key=lambda case: case.part)
    by_part = {case.part: case for case in cases}
    if len(by_part) < len(cases):
        raise ValueError(f"two cases have the same letter: {[case.part for case in cases]}")
    return by_part
