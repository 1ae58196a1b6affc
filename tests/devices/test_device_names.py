from __future__ import annotations

from string import ascii_letters, digits

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorbow.devices import DeviceName
from tensorbow.errors import InvalidArgumentError

RESERVED = {"job", "task", "device", "replica"}
numbers = st.integers(0, 10**9 - 1)
jobs = st.builds(str.__add__, st.sampled_from(ascii_letters + "_"), st.text(ascii_letters + digits + "_.-"))
words = st.builds(str.__add__, st.sampled_from(ascii_letters), st.text(ascii_letters + digits + "_"))
kinds = words.filter(lambda kind: kind.lower() not in RESERVED)


@st.composite
def names(draw: st.DrawFn) -> DeviceName:
    kind = draw(st.none() | st.sampled_from(["CPU", "GPU"]) | kinds)
    index = None if kind is None else draw(st.none() | numbers)
    return DeviceName(
        draw(st.none() | st.sampled_from(["worker", "ps"]) | jobs), draw(st.none() | numbers), kind, index
    )


@pytest.mark.parametrize(
    ("text", "full", "short"),
    [
        ("/device:CPU:0", "/device:CPU:0", "/cpu:0"),
        ("/cpu:0", "/device:CPU:0", "/cpu:0"),
        ("cpu:0", "/device:CPU:0", "/cpu:0"),
        ("GPU:12", "/device:GPU:12", "/gpu:12"),
        ("/cpu:*", "/device:CPU:*", "/cpu:*"),
        ("/cpu", "/device:CPU:*", "/cpu:*"),
        ("/device:gpu:*", "/device:GPU:*", "/gpu:*"),
        ("/job:worker/task:1/device:GPU:0", "/job:worker/task:1/device:GPU:0", "/job:worker/task:1/gpu:0"),
        ("/gpu:3/task:2/job:ps", "/job:ps/task:2/device:GPU:3", "/job:ps/task:2/gpu:3"),
        ("/job:worker", "/job:worker", "/job:worker"),
        ("", "", ""),
    ],
)
def test_each_form_parses(text: str, full: str, short: str) -> None:
    name = DeviceName.parse(text)
    assert (str(name), name.short) == (full, short)


@pytest.mark.slow
@given(names())
def test_full_and_short_form_parse_back(name: DeviceName) -> None:
    assert DeviceName.parse(str(name)) == name
    assert DeviceName.parse(name.short) == name
    assert DeviceName.parse(name) is name


@pytest.mark.parametrize(
    "text",
    ["/", "//", "/cpu:0/", "cpu:-1", "cpu:x", "cpu:", "cpu:0:1", "/cpu:0/gpu:0", "/device", "/device:",
     "/job:", "/job:a/job:b", "/task:x", "/task:*", "/task:1/task:2", "/replica:0", "/device:job:0",
     "/device:device:CPU:0", "0", ":0", "/cpu 0", "cpu:1234567890", "cpu:٣", "/job:wor ker"],
)  # fmt: skip
def test_nonsense_is_refused_with_the_text_and_the_forms(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"expected .*/cpu:0.* got") as caught:
        DeviceName.parse(text)
    assert repr(text) in str(caught.value)


@given(st.text(alphabet="/:*_-.abcpugjotskdevi019 ", max_size=30))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        name = DeviceName.parse(text)
    except InvalidArgumentError:
        return
    assert DeviceName.parse(str(name)) == name


@pytest.mark.parametrize(
    "parts",
    [
        {"index": 0},
        {"kind": "device"},
        {"kind": "C PU"},
        {"task": -1},
        {"job": "a/b"},
        {"kind": "CPU", "index": -1},
    ],
)
def test_parts_that_no_device_has_are_refused(parts: dict[str, object]) -> None:
    with pytest.raises(InvalidArgumentError, match="device name: expected"):
        DeviceName(**parts)  # type: ignore[arg-type]


def test_a_number_is_no_name() -> None:
    with pytest.raises(InvalidArgumentError, match="expected a string, got int"):
        DeviceName.parse(0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("outer", "inner", "merged"),
    [
        ("/job:worker/task:1", "/gpu:0", "/job:worker/task:1/gpu:0"),
        ("/gpu:1", "/cpu:0", "/cpu:0"),
        ("/gpu:1", "/cpu:*", "/cpu:*"),
        ("/gpu:1", "/gpu:*", "/gpu:1"),
        ("/gpu:1", "", "/gpu:1"),
        ("/job:worker/task:1/gpu:1", "/job:ps", "/job:ps/gpu:1"),
        ("/job:worker/task:1", "/task:2", "/job:worker/task:2"),
    ],
)
def test_the_inner_scope_overrides(outer: str, inner: str, merged: str) -> None:
    assert DeviceName.parse(outer).merge(inner).short == merged


@pytest.mark.slow
@given(names(), names())
def test_merge_keeps_all_that_the_inner_says(outer: DeviceName, inner: DeviceName) -> None:
    merged = outer.merge(inner)
    for part in ("job", "task", "kind", "index"):
        if getattr(inner, part) is not None:
            assert getattr(merged, part) == getattr(inner, part)
    assert merged.merge(inner) == merged
    assert DeviceName().merge(inner) == inner
    assert outer.merge(DeviceName()) == outer


def test_completeness() -> None:
    assert DeviceName.parse("/cpu:0").is_complete
    assert not DeviceName.parse("/cpu:*").is_complete
    assert not DeviceName.parse("/job:worker").is_complete
