"""(g) Image files taken in on all cores, against a PIL loop: benchmarks/ingest.py as a case."""

import statistics

import ingest
from measuring import Asked, Case, Figure, Figures, Goal, in_turn, over, timed


def measure(asked: Asked) -> Figures:
    count = 200 if asked.full else 100
    ingest.make(asked.place, count)
    ways = {
        "all cores": lambda: timed(lambda: ingest.take(asked.place, ingest.SIDE)),
        "PIL loop": lambda: timed(lambda: ingest.plain(asked.place)),
    }
    times = in_turn(ways, asked.repeat)
    rates = {way: round(count / statistics.median(values), 1) for way, values in times.items()}
    return {"g.ingest": Figure(over(times, "PIL loop", "all cores"), details={"images_per_second": rates})}


CASE = Case(
    "g",
    "image files taken in on all cores, and by a PIL loop (benchmarks/ingest.py)",
    {"g.ingest": Goal("taking in image files against a PIL loop", 1.7, at_least=True)},
    measure,
)
