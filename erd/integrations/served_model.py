"""The ensemble as MLflow serves it: images in, a table out. MLflow runs this file itself when it loads the model.

    model = mlflow.pyfunc.load_model("models:/erd-digits-near@champion")
    model.predict(images)                        # uint8, N×H×W or N×H×W×C → score, p_value, flagged, predicted

What the columns mean is in erd/weekly/scorer.py. Over HTTP (`mlflow models serve`) MLflow itself makes uint8 of the
numbers in the JSON, and cuts off fractions without a word: send pixels as 0 to 255.
"""

import json
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.pyfunc import PythonModel, PythonModelContext

from erd.weekly.scorer import Facts, Scorer


class Ensemble(PythonModel):
    """Artifacts: `classifier`, `member-<label>`…, `reference` (scores of known images), `neighbours` (what they are
    compared with), `encoder` (its weights, where they are not a package's), `facts` (see registry.py)."""

    def load_context(self, context: PythonModelContext) -> None:
        files = {name: Path(path) for name, path in context.artifacts.items()}
        facts = Facts(**json.loads(files["facts"].read_text(encoding="utf-8")))
        members = [files[f"member-{label}"] for label in facts.labels]
        self.scorer = Scorer(
            facts, files["classifier"], members, files["reference"], files["neighbours"], files.get("encoder")
        )

    def predict(
        self, context: PythonModelContext, model_input: np.ndarray, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        return self.scorer.score(model_input)


mlflow.models.set_model(Ensemble())
