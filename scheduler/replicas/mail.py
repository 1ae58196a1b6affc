"""Mail: the values that the parts of a replica send to each other, between GPUs directly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tensorbow.compiler import sends_of
from tensorbow.devices import Access, Device, Event
from tensorbow.devices.gpu import mail_access
from tensorbow.program import BoundPlan, Executable, Ref

SLOTS = 2  # of each value: it is sent again while the one before is being read


class Letter:
    """A value that one part sends to another in each step: memory for it, and when it was sent and read."""

    def __init__(self, key: str, slot: Ref, sender: Device, receiver: Device):
        """slot: the receiver's input. sender, receiver: devices of the parts."""
        self.key = key
        dtype = slot.dtype.as_numpy_dtype
        self.arrays = [receiver.mailbox(sender, slot.shape, dtype) for _ in range(SLOTS)]
        self.forget()

    def forget(self) -> None:
        """Forgets what was sent and read, when nothing is in flight."""
        self.sent: list[Event | None] = [None] * SLOTS
        self.read: list[Event | None] = [None] * SLOTS

    def access(self, number: int) -> Access:
        """The memory of a step's value, for the race checker."""
        return mail_access(self.arrays[number % SLOTS])


class Mail:
    """Values that one part of a replica receives and sends, by segment of the selected step.

    A step has a number, see `Replica.launch`; steps with consecutive numbers may overlap.
    """

    def __init__(
        self, received: Mapping[int, Sequence[Letter]], sent: Mapping[int, Sequence[tuple[Letter, Ref]]]
    ):
        """sent: with the memory that each is copied from."""
        self._received, self._sent = received, sent
        self.received = frozenset(letter.key for letters in received.values() for letter in letters)

    def before(self, segment: int, number: int) -> Iterator[Event]:
        """Events that a segment waits for: what it reads has come, and what it overwrites has been read."""
        slot = number % SLOTS
        events = [letter.sent[slot] for letter in self._received.get(segment, ())]
        events += [letter.read[slot] for letter, _ in self._sent.get(segment, ())]
        return (event for event in events if event is not None)

    def ran(self, segment: int, number: int, done: Event) -> None:
        """Takes note of when a segment, which was enqueued now, is done."""
        slot = number % SLOTS
        for letter in self._received.get(segment, ()):
            letter.read[slot] = done
        for letter, _ in self._sent.get(segment, ()):
            letter.sent[slot] = done

    def run(self, segment: int, plan: BoundPlan, number: int, launch: Callable[[], None]) -> None:
        """Runs a segment between copies of what it receives and sends; on its stream."""
        slot = number % SLOTS
        for letter in self._received.get(segment, ()):
            plan.copy_in(letter.key, letter.arrays[slot])
        launch()
        for letter, source in self._sent.get(segment, ()):
            plan.copy_out(source, letter.arrays[slot])

    def accesses(self, segment: int, number: int) -> tuple[list[Access], list[Access]]:
        """Memory of mail that a segment reads and writes, for the race checker."""
        received, sent = self._received.get(segment, ()), self._sent.get(segment, ())
        return [letter.access(number) for letter in received], [letter.access(number) for letter, _ in sent]

    def forget(self) -> None:
        """See Letter.forget."""
        for letters in self._received.values():
            for letter in letters:
                letter.forget()


def mail_between(parts: Sequence[Executable], names: Sequence[str], devices: Sequence[Device]) -> list[Mail]:
    """The mail of each part of one replica. names: of the parts, as in what they send."""
    letters: list[dict[str, Letter]] = [{} for _ in parts]  # by receiver and key
    sent: list[dict[int, list[tuple[Letter, Ref]]]] = [{} for _ in parts]
    for sender, part in enumerate(parts):
        for index, segment in enumerate(part.segments):
            for name, key, source in sends_of(segment):
                to = names.index(name)
                if key not in letters[to]:
                    letters[to][key] = Letter(key, parts[to].inputs[key], devices[sender], devices[to])
                sent[sender].setdefault(index, []).append((letters[to][key], source))
    received = [
        {
            index: [own[key] for key in segment.receives]
            for index, segment in enumerate(part.segments)
            if segment.receives
        }
        for part, own in zip(parts, letters, strict=True)
    ]
    return [Mail(own, others) for own, others in zip(received, sent, strict=True)]
