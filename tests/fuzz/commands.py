"""Commands on the small workspace, and what each is meant to change there."""

from dataclasses import dataclass
from fnmatch import fnmatch

from small_workspace import ENCODED, FRESH, INCORPORATED, ON_FEATURES, REVIEWED

HISTORY = ("runs/history.html",)
SCORED = ("*scores.parquet", "decision.json", "neighbours.safetensors", "stages/score.json")
ANSWERED = ("review/retrospect.json", "report.html")
LEDGER = "runs/alarms.json"
LOOKED_AT = ("metrics.json", "figures/*", "plots/*", "report.html")
LIBRARY = ("library/images.*", "library/held.json")


@dataclass(frozen=True)
class Command:
    arguments: tuple[str, ...]
    reads: tuple[str, ...]  # files that are damaged for it
    changes: tuple[str, ...] = ()

    def reads_of(self, files: list[str]) -> list[str]:
        return [name for name in files if any(fnmatch(name, one) for one in self.reads)]


WEEK = ("settings.json", "metrics.json", "data/ingest.json", "learned.json", "stages/score.json", "sensitivity.json",
        "review/answers.jsonl", "scores.parquet", "review/retrospect.json", "decision.json", "mlflow.json")  # fmt: skip
WEEKS = tuple(f"runs/*/{name}" for name in WEEK)


def of_run(batch: str, *names: str) -> tuple[str, ...]:
    return tuple(f"runs/{batch}/{name}" for name in names)


STAGE_READS = {
    "ingest": ("settings.json", "data/*"),
    "encode": ("data/*", "features/*", "stages/encode.json"),
    "pretrain": ("data/labeled.*", "stages/*", "pretrained.*"),
    "validate": ("data/labeled.*", "pretrained.*", "learned.json", "settings.json", "features/*"),
    "finetune": ("data/*", "features/*", "stages/finetune*", "pretrained.*", "members/*"),
    "score": ("data/*", "features/*", "members/*", "pretrained.*", "stages/score.json"),
    "evaluate": ("*scores.parquet", "*.json", "members/*", "pretrained.*", "data/*"),
}


def stage(name: str, batch: str, *changes: str, asked: tuple[str, ...] = ()) -> Command:
    more = [word for one in asked for word in ("--set", one)]
    return Command(("stage", name, "--batch", batch, "--inbox", f"inbox/{batch}.npz", *more),
                   (*of_run(batch, *STAGE_READS[name]), *LIBRARY, "params.yaml", f"inbox/{batch}.npz", LEDGER),
                   of_run(batch, *changes, "settings.json", f"stages/{name}*.json"))  # fmt: skip


def on(batch: str, *command: str, changes: tuple[str, ...] = ()) -> Command:
    return Command((*command[:1], "--batch", batch, *command[1:]),
                   (f"runs/{batch}/*", *LIBRARY, LEDGER, *changes), changes)  # fmt: skip


INGESTED = ("data/*", "quarantine.csv", "settings.json")
NETS = ("pretrained.*", "members/*")
COMMANDS = {
    "history": Command(("history",), WEEKS, HISTORY),
    "status": Command(("status",), (*WEEKS, *LIBRARY, "runs/*/data/batch.*")),
    "doctor": Command(("doctor",), (*WEEKS, *LIBRARY, "runs/*/data/batch.*", "params.yaml", LEDGER, "mlflow.db")),
    "decide": on(FRESH, "decide", "--set", "detect.fdr=0.2",
                 changes=of_run(FRESH, *SCORED, *LOOKED_AT, "settings.json") + HISTORY),
    "sensitivity": on(ENCODED, "sensitivity", changes=of_run(ENCODED, "sensitivity.json", *LOOKED_AT) + HISTORY),
    "incorporate": on(REVIEWED, "incorporate",
                      changes=(*LIBRARY, *of_run(REVIEWED, *ANSWERED, "mlflow.json"), LEDGER, *HISTORY)),
    "undo": on(INCORPORATED, "incorporate", "--undo",
               changes=(*LIBRARY, *of_run(INCORPORATED, *ANSWERED), LEDGER, *HISTORY)),
    "export": on(REVIEWED, "review", "--export", "answers.json"),
    "csv": on(REVIEWED, "review", "--export", "given.csv"),
    "import": Command(("review", "--batch", REVIEWED, "--import", "answers.csv"), ("answers.csv", f"runs/{REVIEWED}/*"),
                      (*of_run(REVIEWED, "review/answers.jsonl", "report.html"), LEDGER)),
    "sync": Command(("sync", f"runs/{REVIEWED}"), (f"runs/{REVIEWED}/*",), of_run(REVIEWED, "mlflow.json")),
    "labelled folder": Command(("ingest", "--labeled", "scans", "--replace"), ("library/*", "scans/*", "params.yaml"),
                               (*LIBRARY, "library/quarantine.csv")),
    "labelled table": Command(("ingest", "--labeled", "labels.csv", "--replace"), ("library/*", "labels.csv"),
                              (*LIBRARY, "library/quarantine.csv")),
    "labelled archive": Command(("ingest", "--labeled", "scans.npz", "--replace"), ("library/*", "scans.npz"),
                                (*LIBRARY, "library/quarantine.csv")),
    "ingest": stage("ingest", FRESH, *INGESTED),
    "pretrain": stage("pretrain", FRESH, *NETS),
    "validate": stage("validate", FRESH, "learned.json", *INGESTED, *NETS),
    "finetune": stage("finetune", FRESH, *NETS),
    "score": stage("score", FRESH, *SCORED),
    "evaluate": stage("evaluate", FRESH, *LOOKED_AT),
    "encode": stage("encode", ENCODED, "features/*", asked=ON_FEATURES),
    "score on features": stage("score", ENCODED, *SCORED, asked=ON_FEATURES),
    "validate on features": stage("validate", ENCODED, "learned.json", *INGESTED, *NETS, asked=ON_FEATURES),
    "evaluate on features": stage("evaluate", ENCODED, *LOOKED_AT, asked=ON_FEATURES),
}  # fmt: skip
