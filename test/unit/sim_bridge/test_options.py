"""Options of policies and hosts from text: whatever is written, a person reads what was expected."""

from __future__ import annotations

import datetime
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest

from osma_monitor.core.errors import MissingDependencyError, UserError
from sim_bridge.hosts import make_simulation
from sim_bridge.options import at_least, checked
from sim_bridge.policies import POLICIES, make_policy
from sim_bridge.policies.chat import ChatClient
from sim_bridge.policies.values import ChatSource, FileSource, TableSource

pytest.importorskip("mujoco")

CHAT = {"url": "http://localhost:1/v1", "model": "tiny"}
CAUTION = {"clearance_m": 1, "speed": 0.5, "region_m": 2, "acceleration": 1}
ODD: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 5, 10**400, -0.5, 1.5, float("nan"), float("inf"), "", "abc", "chat", "c3", "/", "1",
    [], [1], ["goal"], {}, {"a": 1}, {"high": 1}, {"high": {"speed": "x"}}, {"url": 1}, {"jitter": {"position": "x"}},
    datetime.date(2026, 1, 1), b"x",
)  # fmt: skip


def option_names() -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Policy, options that it needs anyway, and the option to give oddly."""
    for name, maker in POLICIES.items():
        needed = {"path": "absent.onnx"} if name == "learned" else {}
        for option in inspect.signature(maker).parameters:
            yield name, needed, option
    for source, cls, needs in (
        ("table", TableSource, {}),
        ("file", FileSource, {"path": "absent.yaml"}),
        ("chat", ChatSource, {"client": CHAT}),
    ):
        for option in inspect.signature(cls).parameters:
            yield "voxposer", {"source": source, **needs}, option
    for option in inspect.signature(ChatClient).parameters:
        yield "pivot", {"chooser": "chat", **CHAT}, option
    for option in inspect.signature(ChatClient).parameters:
        yield "rollout_selection", {"verifier": "chat", "client": CHAT}, f"client.{option}"


@pytest.fixture(scope="module")
def kitchen() -> Iterator[Any]:
    simulation = make_simulation("kitchen", max_steps=2)
    yield simulation
    simulation.close()


@pytest.mark.parametrize(("policy", "needed", "option"), list(option_names()))
def test_an_odd_value_is_refused_in_words_or_drives(
    kitchen: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, policy: str, needed: Any, option: str
) -> None:
    from sim_bridge.rollout import drive

    monkeypatch.chdir(tmp_path)
    refused = 0
    accepted = []
    for value in ODD:
        outer, _, inner = option.partition(".")
        given = {**needed, outer: {**CHAT, inner: value} if inner else value}
        try:
            made = make_policy(policy, **given)
        except UserError as error:
            refused += 1
            assert "object at 0x" not in str(error) and "Error" not in str(error)
        else:
            accepted.append((value, made))
    assert refused  # no option takes everything
    for value, made in accepted[:3] + accepted[-1:]:
        if value == 10**400 or "chat" in needed.values():
            continue
        try:
            drive(kitchen, made, "kitchen/layout0/A/baby", 0)
        except UserError:
            pass  # such as joints asked of a robot without an arm
        except ValueError as error:
            assert policy == "random_joints" and "no joints" in str(error)


@pytest.mark.parametrize(
    ("policy", "given", "says"),
    [
        ("pivot", {"chooser": "chat"}, "the policy pivot with chooser=chat needs the options url and model"),
        ("pivot", {"chooser": "chat", "url": "http://a/v1"}, "needs the option model"),
        ("pivot", {"url": "http://a/v1"}, "option url: goes with chooser=chat alone"),
        ("pivot", {"candidats": 14}, "pivot has no option 'candidats'; did you mean candidates? it takes chooser,"),
        ("pivot", {"chooser": "chat", **CHAT, "retry": 1}, "has no option 'retry'; did you mean retries?"),
        ("voxposer", {"sourec": "chat"}, "voxposer has no option 'sourec'; did you mean source?"),
        ("pivot", {"chooser": "bla"}, "choose scorer or chat"),
        ("pivot", {"candidates": 14.5}, "option candidates of the policy pivot is 14.5; expected a whole number"),
        ("pivot", {"view": "fromabove"}, "expected one of drawn, rendered"),
        ("voxposer", {"source": "chat"}, "source=chat needs the option client="),
        ("voxposer", {"source": "file"}, "the value source file needs the option path"),
        ("voxposer", {"method": "4_step"}, "option method goes with source=chat, not with source=table"),
        ("voxposer", {"source": "chat", "client": CHAT, "method": "4_step"}, "expected one of program, value_only,"),
        ("voxposer", {"source": "chat", "client": {**CHAT, "model": 3}}, "is 3; expected text (in quotes: '\"3\"')"),
        ("voxposer", {"source": "chat", "client": {**CHAT, "modell": 3}}, "did you mean model?"),
        ("rollout_selection", {"k": "abc"}, "k of the policy rollout_selection is 'abc'; expected a whole number"),
        ("rollout_selection", {"client": CHAT}, "client: goes with verifier=chat"),
        ("cautious", {"table": 5}, "option table of the policy cautious is 5; expected a mapping"),
        ("cautious", {"table": {"hihg": {}}}, "hihg: clearance_m, speed, region_m, acceleration missing"),
        ("reversed", {"table": {"high": CAUTION}}, "low is missing"),
        ("random_walk", {"hold_frames": 0}, "hold_frames of the policy random_walk is 0; expected a number of at"),
        ("noisy_shortest_path", {"noise": -1}, "expected a number of at least 0"),
        ("hold", {"speed": 1}, "the policy hold has no option 'speed'; it takes none"),
        ("learned", {}, "the policy learned needs the option path"),
        ("learned", {"path": "a.onnx", "observations": "goal"}, "expected a list such as [a, b]"),
    ],
)  # fmt: skip
def test_what_is_said(policy: str, given: Any, says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        make_policy(policy, **given)


def test_a_table_of_cautions_can_be_written_as_text() -> None:
    from sim_bridge.kitchen.layout import Caution

    made = make_policy("cautious", table={"high": CAUTION})
    assert made._table == {"high": Caution(clearance_m=1.0, speed=0.5, region_m=2.0, acceleration=1.0)}  # type: ignore[attr-defined]


@pytest.mark.parametrize("host", ["kitchen", "so101", "libero", "robocasa"])
def test_hosts_refuse_odd_values_in_words(host: str) -> None:
    from sim_bridge.hosts import _class_of

    try:
        names = list(inspect.signature(_class_of(host)).parameters)
    except ImportError as error:
        pytest.skip(str(error))
    for name in names:
        for value in ODD:
            try:
                make_simulation(host, **{name: value}).close()
            except MissingDependencyError as error:  # the types were right, and the host is not installed
                assert isinstance(value, int) or value is None, error
            except UserError as error:
                assert name in str(error) or str(value) in str(error)
    with pytest.raises(UserError, match=r"max_steps .*-1; expected"):
        make_simulation(host, max_steps=-1)


@dataclass(frozen=True)
class Pair:
    one: float = 1.0
    two: float = 2.0


def maker(
    number: float,
    many: list[int] | None = None,
    kind: Literal["a", "b"] = "a",
    pair: Pair | None = None,
    **more: Any,
) -> None: ...


def test_numbers_of_numpy_are_numbers() -> None:
    def maker(speed: float, count: int = 1, on: bool = False) -> None: ...

    found = checked("the policy x", maker, {"speed": np.float64(0.5), "count": np.int64(3), "on": np.bool_(True)})
    assert found == {"speed": 0.5, "count": 3, "on": True}
    assert [type(value) for value in found.values()] == [float, int, bool]
    with pytest.raises(UserError, match=r"option count of the policy x is 0\.5; expected a whole number"):
        checked("the policy x", maker, {"speed": 1, "count": np.float64(0.5)})


def test_checked_converts_groups_and_hands_on_what_it_does_not_know() -> None:
    assert checked("it", maker, {"number": 1, "pair": {"two": 3}, "x": 7}) == {"number": 1, "pair": Pair(1, 3), "x": 7}
    assert checked("it", maker, {"number": 1, "pair": True})["pair"] == Pair()
    assert checked("it", maker, {"number": 1, "pair": False})["pair"] is None
    for given, says in (
        ({}, "it needs the option number"),
        ({"number": True}, "option number of it is True; expected a number"),
        ({"number": 1, "many": [1, "x"]}, "option many of it: entry 2 is 'x'; expected a whole number"),
        ({"number": 1, "kind": "c"}, "expected one of a, b"),
        ({"number": 1, "pair": 3}, "expected true, false or a mapping of numbers (one, two) or null"),
        ({"number": 1, "pair": {"three": 3}}, "'three' is none of one, two"),
    ):
        with pytest.raises(UserError, match=re.escape(says)):
            checked("it", maker, given)
    with pytest.raises(UserError, match="expected a number of at least 2"):
        at_least("it", "n", float("nan"), 2)
