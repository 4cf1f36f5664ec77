"""A slot whose driver is not there."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.common.options.ports import ANY_PORT
from holdfast.runtime.network.addresses import Address
from holdfast.runtime.network.peers import listen
from holdfast.runtime.resident.slot import Slot, SlotLostError


def test_a_slot_that_does_not_find_its_driver_says_so_and_listens_no_longer() -> None:
    gone = listen(lambda line: None, "127.0.0.1")
    gone.close()
    before = set(threading.enumerate())
    job: Any = SimpleNamespace(certificate=None, ports=ANY_PORT)  # nothing else is needed so early
    with pytest.raises(
        SlotLostError, match=r"slot 1 has lost its connection to the driver: .*no process can be"
    ):
        Slot(job, 0, 1, job).serve(
            Address(gone.address.key, host="127.0.0.1", port=gone.address.port), "127.0.0.1"
        )
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive()
