"""The alarm that experts ring: an image of a new class among the random ones, whatever the scores had said of it."""

import logging
from dataclasses import asdict

from erd.base.errors import UserError
from erd.integrations import notify, prefect_server
from erd.reporting import answer_words, report
from erd.runs import alarm_ledger, audit, configure
from erd.runs.folder import RunDir
from erd.runs.results import Metrics
from erd.statistics.audit import NOTHING, Audit

log = logging.getLogger("erd")


def sound(run: RunDir) -> Audit:
    """Enter what the audit has found into the ledger and the report; where it rings for the first time tell Prefect's
    automations, where there is a server, and people."""
    if not (run.answers.exists() and run.metrics.exists()):
        return NOTHING
    found, metrics = audit.heard(run), Metrics.read(run)
    verdict = metrics.verdict
    stream = configure.read(run).stream
    look = alarm_ledger.enter(
        run.alarms, stream, run.batch_name, verdict.alarm_p, verdict.alarm_level, verdict.weeks_p, found
    )
    if run.report.exists():
        report.write(run)
    if look.first:
        prefect_server.tell("erd.audit-alarm", run.batch_name, {"batch": run.batch_name} | asdict(found))
        title, text = answer_words.audit_message(metrics, found)
        log.info("%s", text)
        try:
            notify.send(notify.addresses(configure.settings_for().alarm.notify), title, text)
        except UserError as error:  # the answers are on disk: nothing about a message may lose what comes after
            log.warning("nobody was told: %s", error)
    return found
