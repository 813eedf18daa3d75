"""The pictures of MLflow in docs/img, from real runs: two settings on the bundled digits, and weeks of files in which a
new class appears, is flagged, labelled and learned. Also the figures of the demo, which is one of these runs.

    .venv/bin/python docs/screenshots.py                 # some minutes; takes chromium, and Python's playwright
    .venv/bin/python docs/screenshots.py --keep DIR      # the runs stay in DIR, and are not made again
"""

import argparse
import io
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Page, sync_playwright
from sklearn.datasets import load_digits

from erd.integrations import mlflow_client, mlflow_views
from erd.review import queue
from erd.runs.answers import Answer, Answers, now
from erd.runs.folder import RunDir

PICTURES = Path(__file__).with_name("img")
DEMO = ("most_novel.png", "scores.png")
WIDTH, HEIGHT = 1400, {"mlflow-compare": 1420, "mlflow-batches": 620, "mlflow-year": 1130, "mlflow-model": 1000}
COLOURS = 128  # of a picture: enough for a page, and a tenth of the bytes
NEW, ARRIVALS = 6, (0, 0, 10, 40, 40, 40)  # the digit that nobody has labelled, and how many of it come each week
LABELLED, A_WEEK = 90, 14  # images of each known digit
WEEKLY = ["--scenario", "own", "--runner", "serial", "--set", "model.net=mlp", "--set", "data.image_size=8", "--set",
          "data.settle=0", "--set", "pretrain.epochs=25", "--set", "pretrain.batch_size=32", "--set",
          "finetune.epochs=10", "--set", "finetune.batch_size=32"]  # fmt: skip
# The assistant beside the page is open at first, and asks for an account elsewhere.
QUIET = "localStorage.setItem('mlflow.assistant.panelOpen_v1', 'false'); localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true')"  # noqa: E501


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", metavar="DIR", type=Path, help="where the runs are, or are to be")
    kept: Path | None = parser.parse_args().keep
    place = (kept or Path(tempfile.mkdtemp(prefix="erd-pictures-"))).absolute()
    place.mkdir(parents=True, exist_ok=True)
    os.chdir(place)
    with _server(place) as uri:
        os.environ["MLFLOW_TRACKING_URI"] = uri
        if not Path("runs").exists():
            _two_settings()
            _weeks()
        _take(uri)
    if kept is None:
        shutil.rmtree(place)


@contextmanager
def _server(place: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    uri = f"http://127.0.0.1:{port}"
    store = ["--backend-store-uri", f"sqlite:///{place}/mlflow.db", "--artifacts-destination", str(place / "mlruns")]
    words = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", port, "--workers", "1", *store]
    with (place / "mlflow.log").open("w") as log:
        server = subprocess.Popen(words, stdout=log, stderr=log, cwd=place)
    try:
        for _ in range(600):
            with suppress(OSError), urllib.request.urlopen(f"{uri}/health", timeout=5):
                break
            time.sleep(0.2)
        yield uri
    finally:
        server.terminate()
        server.wait()


def _erd(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "erd", *words], check=True)


def _two_settings() -> None:
    _erd("run", "--batch", "two-members", "--set", "finetune.members=2")
    _erd("run", "--batch", "five-members")


def _weeks() -> None:
    """Digits 0 to 4 as files, labelled and then week by week; an expert who is always right."""
    pixels, labels = np.rint(load_digits().images * 15.9).astype(np.uint8), load_digits().target
    rng = np.random.default_rng(0)
    rows = {label: list(rng.permutation(np.flatnonzero(labels == label))) for label in (*range(5), NEW)}

    def put(folder: Path, label: int, count: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for _ in range(count):
            row = rows[label].pop()
            Image.fromarray(pixels[row]).save(folder / f"{row:04}.png")

    for label in range(5):
        put(Path("scans") / f"digit {label}", label, LABELLED)
    _erd("ingest", "--labeled", "scans", "--set", "data.image_size=8")
    for number, arrivals in enumerate(ARRIVALS, start=40):
        batch = f"2026-W{number}"
        for label in range(5):
            put(Path("inbox") / batch, label, A_WEEK)
        put(Path("inbox") / batch, NEW, arrivals)
        _erd("run", "--batch", batch, *WEEKLY)
        shown = queue.load(RunDir(Path("runs") / batch))
        ids = shown.table["id"].to_numpy()
        for name, listed in {"flagged": shown.lists["flagged"][: shown.cut], "audit": shown.lists["audit"]}.items():
            Answers(shown.run.answers).merge(
                Answer(image, "class", f"digit {labels[int(Path(image).stem)]}", "ada", name, now())
                for image in ids[listed]
            )
        _erd("incorporate", "--batch", batch)


def _take(uri: str) -> None:
    for name in DEMO:
        shutil.copy(Path("runs/five-members/figures") / name, PICTURES / name)
    client = mlflow_client.connect()
    ids = {found.name: found.experiment_id for found in client.search_experiments()}
    compared, year = (mlflow_views.address(uri, ids[name], view) for name, view in
                      (("digits-near", mlflow_views.WEEKS), ("own", mlflow_views.YEAR)))  # fmt: skip
    weeks = mlflow_views.address(uri, ids["own"], mlflow_views.WEEKS)
    pages = {
        "mlflow-compare": compared,
        "mlflow-batches": weeks.replace("&compareRunsMode=CHART", ""),
        "mlflow-year": year,
        "mlflow-model": f"{uri}/#/models/erd-digits-near/versions/2?{mlflow_views.MODE}",
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium",
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"],
        )
        for name, address in pages.items():
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT[name]})
            page.add_init_script(QUIET)
            page.goto(address)
            _shoot(page, PICTURES / f"{name}.png")
        browser.close()


def _shoot(page: Page, picture: Path) -> None:
    page.wait_for_timeout(8000)  # charts come late, and the page never stops asking for news
    note = page.get_by_text("You're viewing a shared view")
    if note.count():
        note.locator("xpath=ancestor::div[.//button][1]//button").last.click()
        page.wait_for_timeout(2000)
    taken = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    taken.quantize(COLOURS, dither=Image.Dither.NONE).save(picture, optimize=True)
    print(f"{picture} {picture.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
