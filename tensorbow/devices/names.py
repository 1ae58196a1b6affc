"""Device names: `/job:worker/task:1/device:GPU:0` in full, `/gpu:0` in short, and how scopes merge.

The grammar is TensorFlow's (white paper, section 2.1), without its legacy `/replica:` part: the word
replica means something else here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import shown

__all__ = ["DeviceName"]

_FORMS = "'/device:CPU:0', '/cpu:0', 'cpu:0', '/cpu:*' or '/job:worker/task:1/device:GPU:0'"
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_JOB = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_NUMBER = re.compile(r"[0-9]{1,9}")
_KEYS = frozenset({"JOB", "TASK", "DEVICE", "REPLICA"})


@dataclass(frozen=True)
class DeviceName:
    """A device, or a constraint on devices: a part that is None matches anything.

    `kind` is kept in upper case ("CPU", "GPU", "NULL"). Raises InvalidArgumentError for invalid parts, and
    for an index without a kind.
    """

    job: str | None = None
    task: int | None = None
    kind: str | None = None
    index: int | None = None

    def __post_init__(self) -> None:
        if self.job is not None and not _JOB.fullmatch(self.job):
            raise _invalid("job", "letters, digits, '_', '.' or '-', not starting with a digit", self.job)
        if self.kind is not None:
            if not _KIND.fullmatch(self.kind) or self.kind.upper() in _KEYS:
                raise _invalid("kind", "a word such as 'CPU' or 'GPU'", self.kind)
            object.__setattr__(self, "kind", self.kind.upper())
        for part, value in (("task", self.task), ("index", self.index)):
            if value is not None and not 0 <= value < 10**9:
                raise _invalid(part, "a number from 0 to 999999999", value)
        if self.index is not None and self.kind is None:
            raise InvalidArgumentError(
                f"device name: expected a kind beside index {self.index}, got none; "
                f"say DeviceName(kind='CPU', index={self.index})"
            )

    @classmethod
    def parse(cls, text: str | DeviceName) -> DeviceName:
        """The name that `text` spells, in full or short form; a DeviceName passes through.

        `""` matches every device, `/cpu:*` and `/cpu` any CPU. TensorFlow's `/replica:0` after a job is left
        out. Raises InvalidArgumentError for anything else.
        """
        if isinstance(text, DeviceName):
            return text
        if not isinstance(text, str):
            raise InvalidArgumentError(f"device name: expected a string, got {shown(text)}; write {_FORMS}")
        parts = text.split("/")
        if parts[0] == "":
            parts = parts[1:]
        if parts == [""] and text == "/":
            raise _nonsense(text, "it has no parts")
        job: str | None = None
        task: int | None = None
        kind: str | None = None
        index: int | None = None
        for part in parts:
            key, colon, value = part.partition(":")
            if key == "job" and job is None and _JOB.fullmatch(value):
                job = value
            elif key == "task" and task is None and _NUMBER.fullmatch(value):
                task = int(value)
            elif part == "replica:0" and job is not None:
                continue  # TensorFlow's full names have it
            elif key in ("job", "task"):
                again = (job if key == "job" else task) is not None
                raise _nonsense(text, f"{part!r} " + ("comes twice" if again else f"is no {key}"))
            else:
                if key == "device":
                    key, colon, value = value.partition(":")
                if kind is not None:
                    raise _nonsense(text, f"it names a second device, {part!r}")
                if not _KIND.fullmatch(key) or key.upper() in _KEYS:
                    raise _nonsense(text, f"{part!r} is no device" if part else "it has an empty part")
                if colon and value != "*":
                    if not _NUMBER.fullmatch(value):
                        raise _nonsense(text, f"{value!r} is no index")
                    index = int(value)
                kind = key
        return cls(job, task, kind, index)

    @property
    def is_complete(self) -> bool:
        """True if kind and index are both given: the name of one device of a machine."""
        return self.kind is not None and self.index is not None

    @property
    def short(self) -> str:
        """Short form, `/cpu:0`, with `/job:NAME/task:K` in front if given."""
        if self.kind is None:
            return self._where()
        return f"{self._where()}/{self.kind.lower()}:{'*' if self.index is None else self.index}"

    def merge(self, inner: DeviceName | str) -> DeviceName:
        """This outer scope's name, overridden by the parts of `inner`.

        A task belongs to its job and an index to its kind: `/gpu:1` around `/cpu:*` gives `/cpu:*`, never
        `/cpu:1`, and `/gpu:1` around `/gpu:*` gives `/gpu:1`.
        """
        other = DeviceName.parse(inner)
        job, task = (self.job, self.task) if other.job in (None, self.job) else (other.job, None)
        kind, index = (self.kind, self.index) if other.kind in (None, self.kind) else (other.kind, None)
        return DeviceName(
            job,
            task if other.task is None else other.task,
            kind,
            index if other.index is None else other.index,
        )

    def _where(self) -> str:
        job = "" if self.job is None else f"/job:{self.job}"
        return job if self.task is None else f"{job}/task:{self.task}"

    def __str__(self) -> str:
        if self.kind is None:
            return self._where()
        return f"{self._where()}/device:{self.kind}:{'*' if self.index is None else self.index}"


def _invalid(part: str, expected: str, got: object) -> InvalidArgumentError:
    return InvalidArgumentError(f"device name: expected {expected} as {part}, got {got!r}; write {_FORMS}")


def _nonsense(text: str, reason: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"device name: expected {_FORMS}, got {text!r}: {reason}; correct the name")
