"""InteractiveSession: the default session of a notebook."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from tensorbow.graph import AsGraph, default_session
from tensorbow.kinds import checked, one_of
from tensorbow.runtime.config_proto import AsConfig
from tensorbow.runtime.session import Session

NoTarget: TypeAlias = Annotated[
    str, one_of("", remedy="for another target write tb.Session(target).as_default()")
]


class InteractiveSession(Session):
    """A session that is the default one, with a graph that was given, from its creation until `close`, for
    notebooks.

    Of several the newest open one is the default. A `with` statement is not needed.
    """

    @checked
    def __init__(
        self, target: NoTarget = "", graph: AsGraph | None = None, config: AsConfig | None = None
    ) -> None:
        """graph: by default the default graph; one that is given becomes the default graph as well. Raises
        InvalidArgumentError for a target.
        """
        super().__init__(target, graph, config)
        self._default = default_session(self) if graph is None else self.as_default()
        self._default.__enter__()

    def close(self) -> None:
        """Ends the session, which is then no longer the default one; idempotent."""
        if not self.closed:
            self._default.__exit__(None, None, None)
        super().close()
