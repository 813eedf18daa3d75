"""The ensemble as MLflow serves it: images in, a table out. MLflow runs this file itself when it loads the model.

    model = mlflow.pyfunc.load_model("models:/erd-digits-near@champion")
    model.predict(images)                        # uint8, N×H×W or N×H×W×C → score, p_value, flagged, predicted

A score is the flow's own for the same images, to the last bit when they come in the flow's order. The p-values are not:
the flow compares with calibration images that were hidden in the batch its members learned (`mixed`), as the images it
scores were. New images were in no batch, so here they are compared with the calibration images that stayed clean. They
come in any number, so an image is flagged by `detect.fpr`: a false discovery rate takes a whole batch.

Over HTTP (`mlflow models serve`) MLflow itself makes uint8 of the numbers in the JSON, and cuts off fractions without a
word: send pixels as 0 to 255.
"""

import json
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import torch
from mlflow.pyfunc import PythonModel, PythonModelContext

from erd import compute, detection
from erd.data.batches import Mixture, Rows
from erd.disagreement import disagreement
from erd.ensemble import load_net
from erd.params import Run
from erd.training import predict


class Ensemble(PythonModel):
    """Artifacts: `classifier`, `member-<label>`…, `reference` (scores of known images), `facts` (see erd.registry)."""

    def load_context(self, context: PythonModelContext) -> None:
        files = {name: Path(path) for name, path in context.artifacts.items()}
        self.facts = json.loads(files["facts"].read_text(encoding="utf-8"))
        self.device = compute.device(Run(device=self.facts["device"]))
        nets = [files["classifier"], *(files[f"member-{label}"] for label in self.facts["labels"])]
        self.nets = [load_net(net, self.device) for net in nets]
        self.reference = pd.read_parquet(files["reference"])["score"].to_numpy()

    def predict(
        self, context: PythonModelContext, model_input: np.ndarray, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """One row an image. Images go through the nets in the flow's own chunks, whatever their number."""
        images = checked(model_input, self.facts["shape"])
        if not len(images):
            return pd.DataFrame({"score": [], "p_value": [], "flagged": np.array([], bool), "predicted": []})
        rows = Mixture(Rows(torch.from_numpy(images)), device=self.device)
        with compute.threads(self.facts["threads"]):
            classifier, *members = (predict(model, snapshots, rows) for model, snapshots in self.nets)
        scores = disagreement(torch.stack(members), self.facts["distance"]).numpy()
        return pd.DataFrame(
            {
                "score": scores,
                "p_value": detection.p_values(scores, self.reference),
                "flagged": scores > detection.threshold(self.reference, self.facts["fpr"]),
                "predicted": np.array(self.facts["classes"])[classifier.argmax(1).numpy()],
            }
        )


def checked(given: Any, shape: list[int]) -> np.ndarray:
    """uint8 images of one image's `shape`, from an array or from what JSON became; one sentence where that fails."""
    wanted = f"N×{'×'.join(map(str, shape))}"
    try:
        images = np.asarray(given)
    except ValueError:
        raise ValueError(f"the images differ in size; send one array of {wanted} whole numbers 0 to 255") from None
    if images.dtype == object or not (np.issubdtype(images.dtype, np.number) or images.size == 0):
        raise ValueError(f"the images are {images.dtype}, not numbers; send one array of {wanted} numbers 0 to 255")
    if images.shape == (0,):
        return np.zeros((0, *shape), np.uint8)
    if list(images.shape[1:]) != shape:
        raise ValueError(f"the images are {'×'.join(map(str, images.shape))}; this model takes {wanted}")
    with np.errstate(invalid="ignore"):
        whole = images.astype(np.uint8)
    if images.dtype != np.uint8 and not np.array_equal(whole, images):
        raise ValueError("pixel values must be whole numbers from 0 to 255, as files hold them; do not normalise")
    return np.ascontiguousarray(whole)


mlflow.models.set_model(Ensemble())
