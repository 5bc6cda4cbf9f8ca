"""The control channel between real sockets, and the verdict over faulty ranks."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable

from kbit_spark.errors import RunError
from kbit_spark.events import Event
from kbit_spark.training.channel import Client
from kbit_spark.training.control import Control, RankState
from kbit_spark.training.restarts import describe, find_culprit


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_events_steps_and_lines_reach_the_driver() -> None:
    events: list[Event] = []
    with Control("127.0.0.1", events.append) as control:
        control.begin(2)
        client = Client(("127.0.0.1", control.port), control.token, rank=1, attempt=2)
        client.emit(Event("train_window", numbers={"loss": 0.5}, rank=1))
        client.step(0, 7)
        client.log("\n".join(f"line {n}" for n in range(150)))
        client.fail(RunError("bad label", "clean it"), by_peer=False)
        client.close()
        wait_for(lambda: 1 in control.ranks and control.ranks[1].left)
        state = control.ranks[1]
    assert events[0].numbers == {"loss": 0.5}
    assert state.step == 7
    assert (len(state.tail), state.tail[-1]) == (100, "line 149")
    assert state.failure is not None
    assert (state.failure["kind"], state.failure["message"]) == ("fatal", "bad label")
    assert state.lost_at is None


def test_a_connection_that_breaks_is_a_lost_rank() -> None:
    with Control("127.0.0.1", print) as control:
        with socket.create_connection(("127.0.0.1", control.port)) as raw:
            hello = {"token": control.token, "rank": 0, "attempt": 0, "pid": 1}
            raw.sendall(json.dumps(hello).encode() + b'\n{"type": "step", "epoch": 1, "step": 9}\n')
            wait_for(lambda: 0 in control.ranks and control.ranks[0].step == 9)
        wait_for(lambda: bool(control.faulty()))
        error = describe(find_culprit(control.faulty()), "", control.last_step())
    assert (error.rank, error.step) == (0, 9)
    assert error.message == "rank 0 died at step 9 (epoch 1)"


def test_strangers_and_earlier_attempts_are_not_heard() -> None:
    with Control("127.0.0.1", print) as control:
        for hello in (b'{"token": "wrong", "rank": 0, "attempt": 0, "pid": 1}\n', b"GET / HTTP/1.1\n", b"[]\n"):
            with socket.create_connection(("127.0.0.1", control.port)) as raw:
                raw.sendall(hello)
                assert raw.recv(1) == b""
        assert control.ranks == {}


def test_without_a_driver_a_rank_goes_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    client = Client(("127.0.0.1", port), "token", rank=0, attempt=0)
    client.step(0, 1)
    client.close()


def test_the_cause_is_blamed_not_those_who_suffer() -> None:
    dead = RankState(2, lost_at=5.0)
    victim = RankState(0, failed_at=4.0, failure={"kind": "peer", "message": "", "hint": ""})
    bad_input = RankState(1, failed_at=6.0, failure={"kind": "fatal", "message": "", "hint": ""})
    assert find_culprit([victim, dead]) is dead
    assert find_culprit([victim, dead, bad_input]) is bad_input
    echo = RankState(3, failed_at=1.0, failure={"kind": "echo", "message": "", "hint": ""})
    assert find_culprit([echo, victim, bad_input]) is bad_input
    assert find_culprit([]) is None


def test_a_rank_that_says_nothing_is_given_up_but_not_after_a_pause_of_the_driver() -> None:
    with (
        Control("127.0.0.1", print, silence_s=0.5) as control,
        socket.create_connection(("127.0.0.1", control.port)) as raw,
    ):
        hello = {"token": control.token, "rank": 0, "attempt": 0, "pid": 1}
        raw.sendall(json.dumps(hello).encode() + b'\n{"type": "alive"}\n')
        wait_for(lambda: 0 in control.ranks)
        time.sleep(2.1)
        assert control.faulty() == []
        wait_for(lambda: bool(control.faulty()))
        (state,) = control.faulty()
    assert state.silent
    assert describe(state, "", 3).message == "rank 0 stopped answering at step 3 (epoch 0)"


def test_a_living_rank_gives_signs_of_life() -> None:
    with Control("127.0.0.1", print, silence_s=2.0) as control:
        client = Client(("127.0.0.1", control.port), control.token, rank=0, attempt=0)
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            assert control.faulty() == []
            time.sleep(0.1)
        client.close()
