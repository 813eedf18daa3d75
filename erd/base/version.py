"""The version of erd; pyproject.toml has the same."""

VERSION = "0.2.0"
