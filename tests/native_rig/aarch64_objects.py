"""AArch64 object files in memory: sections placed, relocations applied, functions of other code as stubs.

After "ELF for the Arm 64-bit Architecture (AArch64)", section 5.7: S is the address of a symbol, A the
addend, P the address that is changed.
"""

from __future__ import annotations

import io
import mmap
from collections.abc import Callable, Container
from typing import Any

import numpy as np
import pytest

pytest.importorskip("elftools", reason="AArch64 object files are read with pyelftools")

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.enums import ENUM_RELOC_TYPE_AARCH64
from elftools.elf.relocation import RelocationSection

STUB = bytes.fromhex("010000d4 c0035fd6")  # svc #0; ret
PAGE = 1 << 12
REACH = 1 << 27  # bytes that a branch goes to either side
PAGES_REACH = 1 << 32  # the same of the address of a page


class LoadError(Exception):
    """This loader does not support the object file."""


class CodeMemory:
    """Memory for code. Objects are never unloaded, since emulators cache translated code."""

    def __init__(self, nbytes: int = 256 << 20):
        """nbytes: a multiple of PAGE; only used pages take memory."""
        self._memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.bytes = np.frombuffer(self._memory, np.uint8)
        self.start = int(self.bytes.ctypes.data)
        self.stubs: dict[int, str] = {}  # names of functions, by the address of the return behind the call
        self._used = 0

    def take(self, nbytes: int) -> int:
        """Reserves so many bytes from a page boundary; returns the offset. Raises LoadError when full."""
        offset = self._used
        self._used += -(-nbytes // PAGE) * PAGE
        if self._used > len(self.bytes):
            raise LoadError(f"{len(self.bytes)} bytes for code are used up")
        return offset

    def read(self, offset: int, nbytes: int) -> int:
        """Reads a number of so many bytes."""
        return int.from_bytes(self._memory[offset : offset + nbytes], "little")

    def write(self, offset: int, data: bytes) -> None:
        """Writes bytes at an offset."""
        self._memory[offset : offset + len(data)] = data


class LoadedObject:
    """Addresses of an object file's functions, and the kinds of relocations applied."""

    def __init__(self, code: bytes, memory: CodeMemory, provided: Container[str]):
        """provided: names of functions that the code may call besides its own.

        Raises LoadError for an undefined symbol and for an unknown kind of relocation.
        """
        file = ELFFile(io.BytesIO(code))
        if file["e_machine"] != "EM_AARCH64" or file["e_type"] != "ET_REL":
            raise LoadError(f"expected an AArch64 object file, got {file['e_machine']} {file['e_type']}")
        table = file.get_section_by_name(".symtab")
        symbols = [] if table is None else list(table.iter_symbols())
        wanted = sorted({s.name for s in symbols if s["st_shndx"] == "SHN_UNDEF" and s.name})
        missing = [name for name in wanted if name not in provided]
        if missing:
            raise LoadError(f"the code calls {', '.join(missing)}, which nobody provides")
        places, end = _placed(file)
        first = memory.take(end + len(STUB) * len(wanted))
        self._memory, self._sections = memory, {n: first + place for n, place in places.items()}
        for number, place in self._sections.items():
            section = file.get_section(number)
            if section["sh_type"] != "SHT_NOBITS":
                memory.write(place, section.data())
        self._stubs = {name: first + end + len(STUB) * number for number, name in enumerate(wanted)}
        for name, place in self._stubs.items():
            memory.write(place, STUB)
            memory.stubs[memory.start + place + len(STUB) // 2] = name
        addresses = [self._address_of(symbol) for symbol in symbols]
        self.functions = {
            symbol.name: address
            for symbol, address in zip(symbols, addresses, strict=True)
            if symbol["st_info"]["type"] == "STT_FUNC" and address is not None
        }
        self.relocations: set[str] = set()
        for section in file.iter_sections():
            if isinstance(section, RelocationSection) and section["sh_info"] in places:
                self._relocate(section, symbols, addresses)

    def _address_of(self, symbol: Any) -> int | None:
        section = symbol["st_shndx"]
        if section == "SHN_UNDEF":
            return self._memory.start + self._stubs[symbol.name] if symbol.name else None
        place = self._sections.get(section)  # None: of what is not loaded, or no place at all
        return None if place is None else int(self._memory.start + place + symbol["st_value"])

    def _relocate(self, section: Any, symbols: list[Any], addresses: list[int | None]) -> None:
        for entry in section.iter_relocations():
            kind = _NAMES.get(entry["r_info_type"], f"number {entry['r_info_type']}")
            name = symbols[entry["r_info_sym"]].name
            change = _CHANGES.get(kind)
            if change is None:
                raise LoadError(f"relocation {kind} of {name!r}: expected one of {', '.join(_CHANGES)}")
            address = addresses[entry["r_info_sym"]]
            if address is None:
                raise LoadError(f"relocation {kind} of {name!r}, which is in no section that is loaded")
            place = self._sections[section["sh_info"]] + entry["r_offset"]
            size = 8 if kind == "ABS64" else 4
            word = self._memory.read(place, size)
            changed = change(word, address + entry["r_addend"], self._memory.start + place)
            self._memory.write(place, changed.to_bytes(size, "little"))
            self.relocations.add(kind)


def _placed(file: Any) -> tuple[dict[int, int], int]:
    """Offset of each loaded section, by its number, and the end of the last."""
    places: dict[int, int] = {}
    end = 0
    for number, section in enumerate(file.iter_sections()):
        if section["sh_flags"] & SH_FLAGS.SHF_ALLOC and section.name != ".eh_frame":  # nothing unwinds
            places[number] = -(-end // section["sh_addralign"]) * section["sh_addralign"]
            end = places[number] + section["sh_size"]
    return places, -(-end // len(STUB)) * len(STUB)


def _page_of(word: int, target: int, place: int) -> int:
    """The 21 bits of `adrp`."""
    pages = target // PAGE - place // PAGE
    if not -PAGES_REACH <= pages * PAGE < PAGES_REACH:
        raise LoadError(f"the page of {target:#x} is too far from {place:#x}")
    return word & ~0x60FFFFE0 | (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5


def _branch(word: int, target: int, place: int) -> int:
    """The 26 bits of `b` and `bl`."""
    if target % 4 or not -REACH <= target - place < REACH:
        raise LoadError(f"{target:#x} is too far from {place:#x} for a branch")
    return word & ~0x3FFFFFF | (target - place) // 4 & 0x3FFFFFF


def _within_page(size: int) -> Callable[[int, int, int], int]:
    """The 12 bits of an address within its page, in units of so many bytes."""

    def change(word: int, target: int, place: int) -> int:
        if target % size:
            raise LoadError(f"{target:#x} is no multiple of {size}")
        return word & ~(0xFFF << 10) | target % PAGE // size << 10

    return change


_NAMES = {
    number: name.removeprefix("R_AARCH64_")
    for name, number in ENUM_RELOC_TYPE_AARCH64.items()
    if isinstance(number, int)
}
_NAMES.setdefault(299, "LDST128_ABS_LO12_NC")  # pyelftools 0.33 does not name it
_CHANGES: dict[str, Callable[[int, int, int], int]] = {  # of a word, by S + A and P
    "ABS64": lambda word, target, place: target,
    "ADR_PREL_PG_HI21": _page_of,
    "ADD_ABS_LO12_NC": _within_page(1),
    **{f"LDST{8 * size}_ABS_LO12_NC": _within_page(size) for size in (1, 2, 4, 8, 16)},
    "JUMP26": _branch,
    "CALL26": _branch,
}
KNOWN_RELOCATIONS = frozenset(_CHANGES)
