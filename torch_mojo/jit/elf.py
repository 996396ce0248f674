"""ELF files, as far as a library that is built ahead of time needs them: an object with tables, and symbols read.

The tables hold addresses of functions in other objects, so they are an object of their own for the linker. Its few
functions are machine code of x86-64: no compiler is asked.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_R_64, _R_PC32, _R_PLT32 = 1, 2, 4
_PROGBITS, _SYMTAB, _STRTAB, _RELA = 1, 2, 3, 4
_WRITE, _ALLOC, _EXECUTE = 1, 2, 4
_GLOBAL, _FUNCTION, _SECTION = 1, 2, 3
_TEXT, _DATA = 1, 2  # section numbers


@dataclass(frozen=True)
class At:
    """An address in the tables: how far behind their beginning."""

    offset: int


@dataclass(frozen=True)
class Symbol:
    """The address of a function in another object, or in this one."""

    name: str


Word = int | At | Symbol


class Tables:
    """An object file in the making."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._code = bytearray()
        self._data_places: list[tuple[int, At | Symbol]] = []
        self._code_places: list[tuple[int, At | Symbol, int]] = []
        self._functions: dict[str, int] = {}

    def blob(self, content: bytes, align: int = 8) -> At:
        """Add bytes; return where they are."""
        self._data += bytes(-len(self._data) % align)
        at = len(self._data)
        self._data += content
        return At(at)

    def text(self, text: str) -> At:
        """Add a C string."""
        return self.blob(text.encode() + b"\0", 1)

    def words(self, words: Sequence[Word]) -> At:
        """Add 64-bit words."""
        at = self.blob(b"")
        for word in words:
            if isinstance(word, int):
                self._data += (word & (2**64 - 1)).to_bytes(8, "little")
            else:
                self._data_places.append((len(self._data), word))
                self._data += bytes(8)
        return at

    def _function(self, names: str | Sequence[str]) -> None:
        self._code += b"\xcc" * (-len(self._code) % 16)
        for name in [names] if isinstance(names, str) else names:
            self._functions[name] = len(self._code)

    def _jump(self, to: str) -> None:
        self._code += b"\xe9"
        self._code_places.append((len(self._code), Symbol(to), _R_PLT32))
        self._code += bytes(4)

    def address_of(self, name: str, at: At) -> None:
        """Add a function that returns an address in the tables."""
        self._function(name)
        self._code += b"\x48\x8d\x05"  # lea rax, [rip + at]
        self._code_places.append((len(self._code), at, _R_PC32))
        self._code += b"\0\0\0\0\xc3"

    def numbered(self, name: str, number: int, to: str) -> None:
        """Add a function that calls `to` with its first argument and this number."""
        self._function(name)
        self._code += b"\xbe" + number.to_bytes(4, "little")  # mov esi, number
        self._jump(to)

    def same(self, name: str, other: str) -> None:
        """Add a function that is another one."""
        self._function(name)
        self._jump(other)

    def nothing(self, names: Iterable[str]) -> None:
        """Add a function of many names that returns 0."""
        self._function(list(names))
        self._code += b"\x31\xc0\xc3"  # xor eax, eax; ret

    def processor(self) -> None:
        """Add `tm_cpuid(leaf, subleaf, four 32-bit words)` and `tm_xgetbv()`."""
        self._function("tm_cpuid")
        self._code += bytes.fromhex("53 4989d0 89f8 89f1 0fa2")  # push rbx; arguments; cpuid
        self._code += bytes.fromhex("418900 41895804 41894808 4189500c 5b c3")  # store; pop rbx
        self._function("tm_xgetbv")
        self._code += bytes.fromhex("31c9 0f01d0 c3")

    def object(self) -> bytes:
        """Return the object file."""
        names = bytearray(b"\0")
        symbols = [struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)]
        for section in (_TEXT, _DATA):
            symbols.append(struct.pack("<IBBHQQ", 0, _SECTION, 0, section, 0, 0))
        numbers: dict[str, int] = {}

        def add(name: str, section: int, value: int) -> None:
            numbers[name] = len(symbols)
            kind = _GLOBAL << 4 | (_FUNCTION if section else 0)
            symbols.append(struct.pack("<IBBHQQ", len(names), kind, 0, section, value, 0))
            names.extend(name.encode() + b"\0")

        for name, at in self._functions.items():
            add(name, _TEXT, at)
        wanted = [p[1] for p in (*self._data_places, *self._code_places)]
        for symbol in wanted:
            if isinstance(symbol, Symbol) and symbol.name not in numbers:
                add(symbol.name, 0, 0)

        def place(at: int, to: At | Symbol, kind: int, behind: int) -> bytes:
            number = numbers[to.name] if isinstance(to, Symbol) else _DATA
            addend = (to.offset if isinstance(to, At) else 0) - behind
            return struct.pack("<QQq", at, number << 32 | kind, addend)

        data_places = b"".join(place(at, to, _R_64, 0) for at, to in self._data_places)
        code_places = b"".join(place(at, to, kind, 4) for at, to, kind in self._code_places)
        sections = [
            (".text", _PROGBITS, _ALLOC | _EXECUTE, bytes(self._code), 0, 0, 16, 0),
            (".data", _PROGBITS, _ALLOC | _WRITE, bytes(self._data), 0, 0, 16, 0),
            (".rela.text", _RELA, 0, code_places, 5, _TEXT, 8, 24),
            (".rela.data", _RELA, 0, data_places, 5, _DATA, 8, 24),
            (".symtab", _SYMTAB, 0, b"".join(symbols), 6, 3, 8, 24),
            (".strtab", _STRTAB, 0, bytes(names), 0, 0, 1, 0),
            (".note.GNU-stack", _PROGBITS, 0, b"", 0, 0, 1, 0),
        ]
        return _elf(sections)


def _elf(sections: Sequence[tuple[str, int, int, bytes, int, int, int, int]]) -> bytes:
    """Return a relocatable file of these sections: name, type, flags, content, link, info, align, entry size."""
    header_size, entry_size = 64, 64
    titles = bytearray(b"\0")
    body = bytearray()
    headers = [bytes(entry_size)]
    for name, kind, flags, content, link, info, align, size in (
        *sections,
        (".shstrtab", _STRTAB, 0, b"", 0, 0, 1, 0),
    ):
        title = len(titles)
        titles += name.encode() + b"\0"
        body += bytes(-(header_size + len(body)) % align)
        if name == ".shstrtab":
            content = bytes(titles)
        headers.append(
            struct.pack(
                "<IIQQQQIIQQ",
                title,
                kind,
                flags,
                0,
                header_size + len(body),
                len(content),
                link,
                info,
                align,
                size,
            )
        )
        body += content
    body += bytes(-(header_size + len(body)) % 8)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = ident + struct.pack(
        "<HHIQQQIHHHHHH",
        1,
        62,
        1,
        0,
        0,
        header_size + len(body),
        0,
        64,
        0,
        0,
        entry_size,
        len(headers),
        len(headers) - 1,
    )
    return header + bytes(body) + b"".join(headers)


def symbols(path: Path, defined: bool) -> set[str]:
    """Return the global symbols that an object or library defines, or that it asks for."""
    content = path.read_bytes()
    (table,) = struct.unpack_from("<Q", content, 40)
    size, count = struct.unpack_from("<HH", content, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", content, table + i * size) for i in range(count)]
    kinds = [h[1] for h in headers]
    kind = _SYMTAB if _SYMTAB in kinds else 11  # SHT_DYNSYM
    found = set()
    for header in headers:
        if header[1] != kind:
            continue
        strings = headers[header[6]][4]
        for at in range(header[4], header[4] + header[5], 24):
            name, info, _, section = struct.unpack_from("<IBBH", content, at)
            if info >> 4 and bool(section) == defined and name:
                start = strings + name
                found.add(content[start : content.index(b"\0", start)].decode())
    return found
