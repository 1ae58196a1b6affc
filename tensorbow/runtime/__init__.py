"""Running graphs: sessions and the containers of their variables."""

from tensorbow.runtime.container import Container
from tensorbow.runtime.explain import Explanation
from tensorbow.runtime.session import Session

__all__ = ["Container", "Explanation", "Session"]
