"""Addresses of `alarm.notify`: what is wrong is said before a run, and what is secret is never said."""

import pytest

from erd.base.errors import UserError
from erd.integrations import notify


def test_an_address_a_list_a_variable_or_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHERE", "json://secret@localhost")
    assert notify.addresses(None) == []
    assert notify.addresses("json://localhost") == ["json://localhost"]
    assert notify.addresses(["json://localhost", "$WHERE"]) == ["json://localhost", "json://secret@localhost"]
    assert notify.send([], "Something new", "and where"), "nobody is to be told"


def test_what_is_no_address_is_one_sentence_without_what_is_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOWHERE", raising=False)
    monkeypatch.setenv("WRONG", "secret")
    with pytest.raises(UserError, match=r"alarm\.notify is \$NOWHERE but there is no such variable"):
        notify.addresses("$NOWHERE")
    with pytest.raises(UserError, match=r"alarm\.notify: \$WRONG is no apprise URL") as told:
        notify.addresses(["$WRONG"])
    assert "secret" not in str(told.value)


def test_a_message_that_cannot_be_sent_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert not notify.send(["json://secret@127.0.0.1:9"], "Something new", "and where")
    assert "could not be sent" in caplog.text
    assert "secret" not in caplog.text
