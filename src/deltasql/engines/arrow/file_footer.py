"""The footer of a Parquet file, read once and checked before its column chunks are used."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from deltasql.engines.arrow.footer_check import DamagedFooter, check_footer

_TAIL_BYTES = 64 << 10
# A file ends with the footer, its length in four bytes, and four bytes of magic.
_END_BYTES = 8


class FileFooter:
    """The footer of an open Parquet file."""

    def __init__(self, source: pa.NativeFile) -> None:
        self._end = _end_of(source)
        self.metadata = pq.read_metadata(pa.BufferReader(self._end))
        self._checked = False

    def check(self) -> None:
        """Raise DamagedFooter if a column chunk contradicts the schema."""
        if not self._checked:
            check_footer(self._end[:-_END_BYTES], self.metadata.schema)
            self._checked = True

    def chunk(self, group: int, column: int) -> pq.ColumnChunkMetaData:
        """Return a column chunk; raise DamagedFooter if a column chunk of the file contradicts the schema."""
        self.check()
        return self.metadata.row_group(group).column(column)


def _end_of(source: pa.NativeFile) -> bytes:
    """Return the footer and what follows it."""
    size = source.size()
    tail: bytes = source.read_at(min(size, _TAIL_BYTES), max(0, size - _TAIL_BYTES))
    if len(tail) < _END_BYTES or tail[-4:] not in (b"PAR1", b"PARE"):
        raise DamagedFooter("it does not end like a Parquet file")
    length = int.from_bytes(tail[-_END_BYTES:-4], "little") + _END_BYTES
    if length > size:
        raise DamagedFooter(f"its footer has {length} bytes, the file has {size}")
    missing = length - len(tail)
    return source.read_at(missing, size - length) + tail if missing > 0 else tail[-length:]
