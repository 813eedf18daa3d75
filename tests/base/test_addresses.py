"""Addresses without the passwords in them."""

import pytest

from erd.base.addresses import bare, for_request


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("http://me:s3cret@host:5000", "http://host:5000"),
        ("https://me:s3@cret@host/path?x=1", "https://host/path?x=1"),
        ("https://s3cret@host/api", "https://host/api"),
        ("postgresql://me:s3cret@host/mlflow", "postgresql://host/mlflow"),
        ("postgresql+asyncpg://me:s3/cret@host:5432/prefect", "postgresql+asyncpg://host:5432/prefect"),
        ("postgresql://host/mlflow?user=me&password=s3cret&x=1", "postgresql://host/mlflow?user=…&password=…&x=1"),
        ("MLflow at http://me:s3cret@host does not answer, nor http://you:s3cret@host", ""),
        # These have none.
        ("http://host:5000/a@b", "http://host:5000/a@b"),
        ("sqlite:////home/a:b@c/mlflow.db", "sqlite:////home/a:b@c/mlflow.db"),
        ("mlflow.db", "mlflow.db"),
    ],
)
def test_an_address_is_shown_without_user_and_password(address: str, shown: str) -> None:
    assert "cret" not in bare(address)
    assert bare(address) == shown or not shown
    assert bare(bare(address)) == bare(address)


def test_a_request_says_who_asks_in_its_header() -> None:
    assert for_request("http://host/api") == ("http://host/api", {})
    plain, headers = for_request("http://me:w%40rd@host/api")
    assert plain == "http://host/api"
    assert headers == {"Authorization": "Basic bWU6d0ByZA=="}  # me:w@rd
