"""Settings and arguments that nobody should give, and somebody will."""

from hypothesis import strategies as st

from erd.settings import schema

BOMB = "[" + ", ".join([f"&a0 [{', '.join('x' * 10)}]", *(
    f"&a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9))]) + "]"  # fmt: skip
NUMBERS = ("0", "-1", "1000000000", "1" + "0" * 30, "9" * 5000, "1e308", ".nan", "-.inf", "2.5", "1:30", "0x7f",
           "1_000")  # fmt: skip
TEXTS = ("", "null", "~", "yes", "text", "..", "/", "a/b", '"a\\0b"', '"\\ud800"', "x" * 100_000, "*a",
         "!!python/name:os.system", "2026-13-45", "週-46", "'\t'", "%", "@", "`", "<b>", "--", "a\nb")  # fmt: skip
SHAPES = ("[]", "{}", "[1, [2]]", "{a: 1}", "[" * 2000, "{a: " * 2000, BOMB, "[null]", '["a\\0b"]')
WORDS = ("0", "-1", "1" + "0" * 30, "9" * 5000, "2.5", "nan", "", "text", "99999", "-0", "٣", "x" * 100_000, "..", "/",
         ".", "a\nb", "\udcff", "runs/2026-W44", "2026-W44", "週-46")  # fmt: skip
KEYS = list(schema.keys())
# Numbers that only make a run long, or start what is asked for.
LONG = ("epochs", "ema_steps", "device", "download")
REVIEW = ("review", "--batch", "2026-W44")
BATCH = ("--batch", "odd", "--inbox", "inbox/2026-W45.npz")
COMMANDS = (
    ("history", "--json", "{}"), ("status", "{}"), ("doctor", "--data", "{}"), ("completion", "{}"), ("methods", "{}"),
    ("decide", "--batch", "2026-W45", "--set", "{}"), ("decide", "--batch", "{}", "--set", "detect.fdr=0.2"),
    ("sensitivity", "--batch", "{}"), ("incorporate", "--batch", "{}"), ("review", "--batch", "{}"),
    (*REVIEW, "--host", "{}", "--port", "{}9999999"), (*REVIEW, "--port", "-1{}"), (*REVIEW, "--export", "{}"),
    (*REVIEW, "--import", "{}"), ("simulate", "--weeks", "{}", "--scenario", "text"),
    ("simulate", "--weeks", "9{}00000", "--scenario", "digits-near"),
    ("bench", "--seeds", "{}", "--method", "text"), ("bench", "--scenario", "{}"), ("bench", "--sweep", "{}"),
    ("bench", "--output", "{}", "--method", "text"), ("bench", "--seeds", "9{}00000"),
    ("stage", "{}", *BATCH), ("stage", "finetune", "--label", "{}", *BATCH),
    ("stage", "ingest", "--batch", "{}"), ("stage", "ingest", "--batch", "odd", "--inbox", "{}"),
    ("stage", "ingest", "--params", "{}", *BATCH), ("stage", "ingest", "--scenario", "{}", *BATCH),
    ("stage", "ingest", "--runner", "{}", *BATCH), ("ingest", "--labeled", "{}"), ("reproduce", "{}"), ("sync", "{}"),
    ("init", "new", "--labeled", "{}"), ("init", "new", "--labeled", "scans", "--weekly", "{}"),
    ("init", "new", "--labeled", "scans", "--timezone", "{}"), ("{}",), ("run", "{}"),
    ("run", "--batch", "{}", "--scenario", "x"),
)  # fmt: skip


def settings() -> st.SearchStrategy[tuple[str, str]]:
    """Key and value, as `--set` takes them."""
    known = [key for key in KEYS if not key.endswith(LONG)]
    keys = st.sampled_from([*known, "data", "nothing", "data.nothing", "", "data.known.x", "x" * 100_000])
    return st.tuples(keys, st.sampled_from((*NUMBERS, *TEXTS, *SHAPES)))


def commands() -> st.SearchStrategy[list[str]]:
    return st.builds(
        lambda command, word: [part.replace("{}", word) for part in command],
        st.sampled_from(COMMANDS),
        st.sampled_from(WORDS),
    )


def params() -> st.SearchStrategy[str]:
    """What params.yaml may hold."""
    lines = st.builds(lambda key, value: _nested(key, value), st.sampled_from(KEYS),
                      st.sampled_from((*NUMBERS, *TEXTS, *SHAPES)))  # fmt: skip
    return st.one_of(lines, st.sampled_from((*TEXTS, *SHAPES, *NUMBERS)), st.text(max_size=200))


def _nested(key: str, value: str) -> str:
    block, _, leaf = key.rpartition(".")
    return f"{block}:\n  {leaf}: {value}\n" if block else f"{leaf}: {value}\n"
