"""Prefect flows around the stages of `erd`: `weekly` (flows/weekly.py)."""
