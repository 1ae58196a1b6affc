"""Pools of various windows, with sizes around multiples of the vector width."""

from hypothesis import strategies as st

from tests.native_rig.native_calls import TARGETS

# Shapes of images, windows, strides, padding, processors.
ANY_POOL = (
    st.tuples(
        st.integers(1, 2), st.integers(1, 7), st.integers(1, 7), st.sampled_from([1, 8, 9, 15, 16, 33, 70])
    ),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.sampled_from(["VALID", "SAME"]),
    st.sampled_from(list(TARGETS)),
)
