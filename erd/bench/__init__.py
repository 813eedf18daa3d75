"""Novelty detectors compared, and ERD varied: `erd bench`.

plan: which cells there are · cells: one of them, in a worker · run: all of them · rows: what is written down · tables,
sweeps: what people read · sending: to MLflow · paper: the figures beside ours · detectors: a file each.
"""
