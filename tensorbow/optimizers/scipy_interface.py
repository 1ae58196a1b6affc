"""Full-batch minimisation by SciPy, of which L-BFGS is the default (OSDI 2016 paper, section 4.1)."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.gradients import gradients
from tensorbow.graph import convert_to_tensor, get_default_session
from tensorbow.kinds import Function, Items, Mapped, Text, checked, refuse
from tensorbow.variables import Variables, trainable_variables


class ScipyOptimizerInterface:
    """Minimises a scalar loss over variables by `scipy.optimize.minimize`, from their present values.

    loss: a floating scalar. var_list: the variables to change, by default all trainable ones. method: one of
    SciPy's methods with gradients and without constraints, such as "L-BFGS-B" or "CG". options: SciPy's, such
    as {"maxiter": 100}. var_to_bounds: least and largest values of variables, each a number or an array that
    broadcasts to the variable's shape; for methods with bounds, such as "L-BFGS-B". SciPy counts in float64;
    each variable gets its part rounded to its own dtype.

    Raises InvalidArgumentError for a loss that is no floating scalar or depends on none of the variables, and
    NotFoundError where SciPy is not installed.
    """

    @checked
    def __init__(
        self,
        loss: Any,
        var_list: Variables | None = None,
        method: Text = "L-BFGS-B",
        options: Mapped | None = None,
        var_to_bounds: Mapped | None = None,
    ):
        tensor = convert_to_tensor(loss)
        if tensor.spec.extents != () or not tensor.dtype.is_floating:
            raise InvalidArgumentError(
                f"ScipyOptimizerInterface: loss must be a floating scalar, got {tensor.spec}; "
                "use tb.reduce_mean"
            )
        with tensor.graph.as_default():
            self._variables = list(trainable_variables() if var_list is None else var_list)
            found = gradients(tensor, self._variables)
        pairs = [(g, v) for g, v in zip(found, self._variables, strict=True) if g is not None]
        if not pairs:
            raise InvalidArgumentError(
                f"ScipyOptimizerInterface: no gradient leads from loss {tensor.name} to var_list"
            )
        self._variables = [v for _, v in pairs]
        self._fetches = [tensor, [convert_to_tensor(g) for g, _ in pairs]]
        self.method, self.options = method, dict(options or {})
        self._bounds: dict[Any, np.ndarray] = {}
        for variable, pair in (var_to_bounds or {}).items():
            if variable not in self._variables:
                raise InvalidArgumentError(
                    "ScipyOptimizerInterface: expected var_to_bounds to have variables of var_list on which "
                    f"the loss depends, got {variable!r}"
                )
            self._bounds[variable] = _bounds_of(variable, pair)

    @checked
    def minimize(
        self,
        session: Any = None,
        feed_dict: Mapped | None = None,
        step_callback: Function | None = None,
        fetches: Items = (),
        loss_callback: Function | None = None,
    ) -> Any:
        """Runs the minimisation in `session`, loads the best values, and returns SciPy's OptimizeResult.

        session: by default that of the `with` around. feed_dict: the same in every evaluation. step_callback:
        called with the flat float64 values after each iteration. loss_callback: called after each evaluation
        with the values of `fetches`.
        """
        session = get_default_session() if session is None else session
        if isinstance(session, type) or not callable(getattr(session, "run", None)):
            raise refuse("minimize", "session", "a session, as tb.Session()", session)
        try:
            search = import_module("scipy.optimize")
        except ImportError as error:
            raise NotFoundError(
                "ScipyOptimizerInterface: SciPy is not installed; pip install scipy"
            ) from error
        start = [np.asarray(value) for value in session.run(self._variables)]
        ends = np.cumsum([value.size for value in start])[:-1]

        def load(flat: np.ndarray) -> None:
            for variable, old, part in zip(self._variables, start, np.split(flat, ends), strict=True):
                variable.load(part.reshape(old.shape).astype(old.dtype), session)

        def evaluate(flat: np.ndarray) -> tuple[float, np.ndarray]:
            load(flat)
            (loss, grads), values = session.run([self._fetches, list(fetches)], feed_dict)
            if loss_callback is not None:
                loss_callback(*values)
            return float(loss), np.concatenate([np.ravel(g).astype(np.float64) for g in grads])

        flat = np.concatenate([np.ravel(value).astype(np.float64) for value in start])
        result = search.minimize(
            evaluate,
            flat,
            jac=True,
            method=self.method,
            options=self.options,
            bounds=self._flat_bounds(),
            callback=step_callback,
        )
        load(result.x)
        return result

    def _flat_bounds(self) -> np.ndarray | None:
        """Bounds of the flat values, float64 [values, 2]; None without any."""
        if not self._bounds:
            return None
        free = (-np.inf, np.inf)
        sides = [self._bounds[v] if v in self._bounds else _bounds_of(v, free) for v in self._variables]
        joined: np.ndarray = np.concatenate(sides, axis=1).T
        return joined


def _bounds_of(variable: Any, pair: Any) -> np.ndarray:
    """Least and largest values of a variable's elements, float64 [2, elements]."""
    try:
        low, high = (np.broadcast_to(np.asarray(side, np.float64), variable.shape.dims) for side in pair)
        if np.all(low <= high):
            return np.stack([low.ravel(), high.ravel()])
    except (TypeError, ValueError):
        pass
    expected = f"(least, largest), numbers or arrays for {variable.shape}, with least <= largest"
    raise refuse("ScipyOptimizerInterface", f"var_to_bounds[{variable.name!r}]", expected, pair)
