"""CRC32C, the checksum of batches and of our own state files."""

from __future__ import annotations

from ringlog.native._kernel import crc32c

__all__ = ["crc32c"]
