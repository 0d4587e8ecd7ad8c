from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.adapters.memory.table import ExpiryWheel
from headgate.core.units import SECOND


def test_a_name_is_due_once_its_time_has_passed() -> None:
    """A name is handed out within a second after it expires, never before, and only once."""
    wheel = ExpiryWheel()
    wheel.file("a", 5 * SECOND)
    assert list(wheel.due(5 * SECOND, 10)) == []
    assert list(wheel.due(6 * SECOND, 10)) == ["a"]
    assert list(wheel.due(99 * SECOND, 10)) == []


def test_only_so_many_are_handed_out() -> None:
    """Of many due names only as many as were asked for are handed out; the others wait for the next time."""
    wheel = ExpiryWheel()
    for number in range(10):
        wheel.file(f"k{number}", number % 2 * SECOND)
    first = list(wheel.due(9 * SECOND, 4))
    rest = list(wheel.due(9 * SECOND, 100))
    assert (len(first), len(wheel)) == (4, 0)
    assert sorted(first + rest) == [f"k{number}" for number in range(10)]


def test_a_name_can_be_struck_out() -> None:
    """A struck name is not handed out, and its second is forgotten with the last name in it."""
    wheel = ExpiryWheel()
    slots = {name: wheel.file(name, 5 * SECOND) for name in ("a", "b")}
    wheel.strike("a", slots["a"])
    wheel.strike("a", slots["a"])
    assert list(wheel.due(9 * SECOND, 10)) == ["b"]
    wheel.strike("b", slots["b"])
    assert len(wheel) == 0


def test_the_soonest_comes_first() -> None:
    """Asked for the soonest, the wheel gives a name of the earliest second, due or not."""
    wheel = ExpiryWheel()
    for name, second in {"late": 9, "early": 3, "middle": 5}.items():
        wheel.file(name, second * SECOND)
    assert [wheel.soonest() for _ in range(4)] == ["early", "middle", "late", None]


def test_a_name_filed_again_and_again_takes_one_place() -> None:
    """Filing and striking without end, as resetting a key does, keeps nothing behind."""
    wheel = ExpiryWheel()
    for second in range(10_000):
        wheel.strike("k", wheel.file("k", second * SECOND))
    assert len(wheel) == 0
    assert len(wheel._slots) == 0
    assert len(wheel._order) <= 100
    wheel.file("k", 5 * SECOND)
    assert wheel.soonest() == "k"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("file"), st.integers(0, 9), st.integers(0, 30_000_000)),
        st.tuples(st.just("strike"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("due"), st.integers(0, 5), st.integers(0, 30_000_000)),
        st.tuples(st.just("soonest"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(STEPS)
def test_the_wheel_is_a_dictionary_of_seconds(steps: list[tuple[str, int, int]]) -> None:
    """Whatever is done to it, the wheel answers as a plain dictionary from names to seconds would."""
    wheel = ExpiryWheel()
    filed: dict[str, int] = {}
    for step, number, instant in steps:
        name = f"k{number}"
        if step == "file" and name not in filed:
            filed[name] = wheel.file(name, instant)
            assert filed[name] * SECOND > instant >= (filed[name] - 1) * SECOND
        elif step == "strike" and name in filed:
            wheel.strike(name, filed.pop(name))
        elif step == "due":
            due = list(wheel.due(instant, number))
            possible = sorted(slot for slot in filed.values() if slot * SECOND <= instant)
            assert [filed.pop(each) for each in due] == possible[:number]
        elif step == "soonest":
            earliest = min(filed.values(), default=None)
            soonest = wheel.soonest()
            assert earliest == (None if soonest is None else filed.pop(soonest))
        assert len(wheel) == len(filed)
