"""What a person sees first in MLflow: the kind of an experiment, what it is about, and views of it that are ready made.

    dress(client, experiment_id, tags, STREAM)       # where `tags` has not got all of it yet
    address(uri, experiment_id, WEEKS)               # opens the view in a browser

MLflow opens as a tool for language models, with a table that has no figures and charts in alphabetical order. Its links
say otherwise: `workflowType` is the kind of work, `viewStateShareKey` a saved view, which is a tag of the experiment
with columns and charts as JSON.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlflow import MlflowClient

KIND, KIND_OF_OURS = "mlflow.experimentKind", "custom_model_development"
NOTE = "mlflow.note.content"
VIEW = "mlflow.sharedViewState."
MODE = "workflowType=machine_learning"
YEAR_TAG = "year"  # only the run with a point a week has it
LETTER = 8  # pixels of a column for each of its name: so that the name fits


@dataclass(frozen=True)
class View:
    key: str  # in its address
    name: str  # in the menu
    columns: tuple[str, ...] = ()  # metrics in the table
    bars: tuple[str, ...] = ()  # a chart each, the runs side by side
    lines: tuple[str, ...] = ()  # a chart each, a point a step
    filter: str = ""

    def tag(self) -> tuple[str, str]:
        sections: list[dict[str, Any]] = []
        charts: list[dict[str, Any]] = []
        for title, chosen, room in (
            ("At a glance", [_bar(metric) for metric in self.bars] + [_line(metric) for metric in self.lines], {}),
            ("Settings that differ", [_difference()] if self.bars else [], {"columns": 1, "cardHeight": 260}),
        ):
            if chosen:
                uuid = f"{self.key}-{len(sections)}"
                about = {"uuid": uuid, "name": title, "display": True, "isReordered": True, "deleted": False}
                sections.append(about | {"isGenerated": False} | room)
                charts += [chart | {"metricSectionId": uuid, "uuid": f"{uuid}-{i}"} for i, chart in enumerate(chosen)]
        columns = [f"metrics.`{metric}`" for metric in self.columns]
        state = {
            "searchFilter": self.filter,
            "orderByKey": "attributes.start_time",
            "orderByAsc": False,
            "startTime": "ALL",
            "lifecycleFilter": "Active",
            "modelVersionFilter": "All Runs",
            "datasetsFilter": [],
            "selectedColumns": columns,
            "columnOrder": columns,
            "columnWidths": {f"metrics.`{metric}`": LETTER * (len(metric) + 2) for metric in self.columns},
            "compareRunCharts": charts,
            "compareRunSections": sections,
            "isAccordionReordered": True,
        }
        saved = {"name": self.name, "createdAt": 0, "updatedAt": 0, "state": json.dumps(state)}
        return f"{VIEW}{self.key}", json.dumps(saved)


def _bar(metric: str) -> dict[str, Any]:
    return {"type": "BAR", "metricKey": metric, "runsCountToCompare": 10, "deleted": False, "isGenerated": True}


def _line(metric: str) -> dict[str, Any]:
    scale = "log" if metric.endswith("_p") else "linear"  # p-values tell by their powers of ten
    return {
        "type": "LINE", "metricKey": metric, "runsCountToCompare": 10, "deleted": False, "isGenerated": True,
        "lineSmoothness": 0, "scaleType": scale, "xAxisScaleType": "linear", "xAxisKey": "step", "range": {},
        "selectedXAxisMetricKey": "", "yAxisKey": "metric", "yAxisExpressions": [], "ignoreOutliers": False,
        "useGlobalXaxisKey": True, "useGlobalLineSmoothing": True, "displayPoints": True,
    }  # fmt: skip


def _difference() -> dict[str, Any]:
    return {
        "type": "DIFFERENCE", "compareGroups": ["Parameters"], "chartName": "Settings that differ", "deleted": False,
        "isGenerated": False, "runsCountToCompare": 10, "showChangeFromBaseline": False, "showDifferencesOnly": True,
        "baselineColumnUuid": "",
    }  # fmt: skip


WEEKS = View(
    key="erd-weeks",
    name="Batches at a glance",
    columns=("batch/alarm_p", "batch/weeks_p", "batch/flagged", "batch/look_at_novel", "classifier/val_accuracy",
             "detection/auroc", "detection/p50", "review/flag_precision"),
    bars=("detection/auroc", "detection/tnr95", "detection/p50", "batch/flagged", "batch/novel_share",
          "classifier/val_accuracy", "review/flag_precision", "batch/noticed_from"),
    filter="tags.batch != ''",  # whatever has that tag
)  # fmt: skip
YEAR = View(
    key="erd-year",
    name="The year, a point a week",
    lines=("year/alarm_p", "year/weeks_p", "year/flagged", "year/flag_precision", "year/accuracy", "year/alarm"),
    filter=f"tags.{YEAR_TAG} != ''",
)


def address(uri: str, experiment: str | None, view: View) -> str:
    """Where a browser shows the charts of a view."""
    return f"{uri.rstrip('/')}/{_place(experiment, view)}"


def _place(experiment: str | None, view: View) -> str:
    return f"#/experiments/{experiment}/runs?{MODE}&viewStateShareKey={view.key}&compareRunsMode=CHART"


@dataclass(frozen=True)
class Look:
    """Of an experiment: what it is about, its views, and how its metrics are named."""

    title: str
    note: str
    views: tuple[View, ...] = ()


STREAM = Look(
    "Which images show something that nobody has labelled? One run a batch.",
    "`batch/…` is what was said of the batch, `detection/…` and `holdout/…` how right that was where the truth is "
    "known, `classifier/…` the classifier, `review/…` what experts said, `scores/…` what other scores would give.",
    (WEEKS, YEAR),
)
BENCH = Look(
    "Detectors side by side, by erd bench: one run a detector, scenario and seed.",
    "`detection/…` is on the batch, `holdout/…` on images that were not in it.",
)


def dress(client: "MlflowClient", experiment: str, tags: dict[str, str], look: Look) -> None:
    """Tag the experiment, where it is not so tagged yet. A note that somebody has written stays."""
    from mlflow.exceptions import MlflowException

    links = [f"[{view.name}]({_place(experiment, view)})" for view in look.views]
    wanted = {KIND: KIND_OF_OURS, **dict(view.tag() for view in look.views)}
    if NOTE not in tags:
        wanted[NOTE] = f"{' · '.join([look.title, *links])}\n\n{look.note}"  # of which lists show the beginning
    try:
        for key, value in wanted.items():
            if tags.get(key) != value:
                client.set_experiment_tag(experiment, key, value)
    except MlflowException:  # who may not tag may still log
        return
