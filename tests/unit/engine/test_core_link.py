"""CoreLink: how it lets go of its sockets."""

from __future__ import annotations

import logging

import zmq

from octavo.engine import core_link
from octavo.engine.core_link import CoreLink, open_socket


def test_the_end_may_come_twice(caplog):
    link = CoreLink()
    with caplog.at_level(logging.WARNING):
        link._disconnect()
        link._disconnect()
    assert link._context.closed
    assert not caplog.records


def test_nobody_waits_for_zeromq_for_ever(monkeypatch, caplog):
    link = CoreLink()
    held = open_socket(link._context, zmq.PULL)  # for which the end of a context waits
    monkeypatch.setattr(core_link, "END_SECONDS", 0.01)
    with caplog.at_level(logging.WARNING):
        link._disconnect()
    assert "has not closed the sockets" in caplog.text
    held.close()
