"""The ensemble as MLflow serves it: images in, a table out. MLflow runs this file itself when it loads the model.

    model = mlflow.pyfunc.load_model("models:/erd-digits-near@champion")
    model.predict([png, jpeg])                   # contents of files → score, p_value, flagged, predicted
    model.predict(images)                        # or arrays of pixels, of any size

What the columns mean is in erd/weekly/scorer.py, what is taken in erd/data/given.py. Over HTTP (`mlflow models serve`)
a file is its content in base64: {"inputs": ["iVBORw0KGgo…"]}. There is no input schema: what does not fit one is
refused by MLflow with a page of text, and by us with a sentence.
"""

import json
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import BAD_REQUEST
from mlflow.pyfunc import PythonModel, PythonModelContext

from erd.data.decode import Unfit
from erd.weekly.scorer import Facts, Scorer


class Refused(MlflowException):
    """Images that cannot be scored. The server puts all that was sent before the message of an error, and its own words
    in place of one that is not MLflow's: so this is one, and keeps its sentence."""

    def __init__(self, sentence: str) -> None:
        self._sentence = sentence
        super().__init__(sentence, error_code=BAD_REQUEST)

    @property
    def message(self) -> str:
        return self._sentence

    @message.setter
    def message(self, other: str) -> None:
        pass


class Ensemble(PythonModel):
    """Artifacts: `classifier`, `member-<label>`…, `reference` (scores of known images), `neighbours` (what they are
    compared with), `encoder` (its weights, where they are not a package's), `facts` (see registry.py)."""

    def load_context(self, context: PythonModelContext) -> None:
        files = {name: Path(path) for name, path in context.artifacts.items()}
        facts = Facts(**json.loads(files["facts"].read_text(encoding="utf-8")))
        facts.check(files)
        members = [files[f"member-{label}"] for label in facts.labels]
        self.scorer = Scorer(
            facts, files["classifier"], members, files["reference"], files["neighbours"], files.get("encoder")
        )

    # It takes more than arrays; but MLflow warns, in the user's terminal, of any other hint, and of none.
    def predict(
        self, context: PythonModelContext, model_input: np.ndarray, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        try:
            return self.scorer.score(model_input)
        except Unfit as reason:
            raise Refused(str(reason)) from None


mlflow.models.set_model(Ensemble())
