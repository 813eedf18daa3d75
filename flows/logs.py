"""What the stages log, shown with the flow run too."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from prefect.logging.handlers import APILogHandler

log = logging.getLogger("erd")


@contextmanager
def told_to_prefect() -> Iterator[None]:
    handler = APILogHandler()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
