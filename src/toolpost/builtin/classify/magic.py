"""What bytes begin with: pictures, archives, programs, documents, media, databases.

Above: ``tool.py``. Below: nothing. Only the first bytes are looked at; nothing is unpacked here.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from toolpost.builtin.classify.guess import Guess

_MAGIC: Final = (
    (0, b"\x89PNG\r\n\x1a\n", "image", "png", "image/png"),
    (0, b"\xff\xd8\xff", "image", "jpeg", "image/jpeg"),
    (0, b"GIF87a", "image", "gif", "image/gif"),
    (0, b"GIF89a", "image", "gif", "image/gif"),
    (8, b"WEBP", "image", "webp", "image/webp"),
    (0, b"II*\x00", "image", "tiff", "image/tiff"),
    (0, b"MM\x00*", "image", "tiff", "image/tiff"),
    (0, b"\x00\x00\x01\x00", "image", "ico", "image/x-icon"),
    (4, b"ftypheic", "image", "heic", "image/heic"),
    (4, b"ftypavif", "image", "avif", "image/avif"),
    (0, b"8BPS", "image", "psd", "image/vnd.adobe.photoshop"),
    (0, b"%PDF-", "document", "pdf", "application/pdf"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "document", "ole", "application/x-ole-storage"),
    (0, b"PK\x03\x04", "archive", "zip", "application/zip"),
    (0, b"PK\x05\x06", "archive", "zip", "application/zip"),
    (0, b"\x1f\x8b", "archive", "gzip", "application/gzip"),
    (0, b"BZh", "archive", "bzip2", "application/x-bzip2"),
    (0, b"\xfd7zXZ\x00", "archive", "xz", "application/x-xz"),
    (0, b"\x28\xb5\x2f\xfd", "archive", "zstd", "application/zstd"),
    (0, b"\x04\x22\x4d\x18", "archive", "lz4", "application/x-lz4"),
    (0, b"7z\xbc\xaf\x27\x1c", "archive", "7z", "application/x-7z-compressed"),
    (0, b"Rar!\x1a\x07", "archive", "rar", "application/vnd.rar"),
    (257, b"ustar", "archive", "tar", "application/x-tar"),
    (0, b"!<arch>\ndebian", "archive", "deb", "application/vnd.debian.binary-package"),
    (0, b"!<arch>\n", "archive", "ar", "application/x-archive"),
    (0, b"\xed\xab\xee\xdb", "archive", "rpm", "application/x-rpm"),
    (0, b"MSCF", "archive", "cab", "application/vnd.ms-cab-compressed"),
    (0, b"\x7fELF", "executable", "elf", "application/x-elf"),
    (0, b"\xcf\xfa\xed\xfe", "executable", "mach-o", "application/x-mach-binary"),
    (0, b"\xca\xfe\xba\xbe", "executable", "java class", "application/java-vm"),
    (0, b"\x00asm", "executable", "wasm", "application/wasm"),
    (0, b"dex\n", "executable", "dex", "application/vnd.android.dex"),
    (0, b"SQLite format 3\x00", "database", "sqlite", "application/vnd.sqlite3"),
    (0, b"PAR1", "database", "parquet", "application/vnd.apache.parquet"),
    (0, b"ARROW1", "database", "arrow", "application/vnd.apache.arrow.file"),
    (0, b"Obj\x01", "database", "avro", "application/vnd.apache.avro"),
    (0, b"ORC", "database", "orc", "application/vnd.apache.orc"),
    (0, b"\x89HDF\r\n\x1a\n", "database", "hdf5", "application/x-hdf5"),
    (0, b"\x93NUMPY", "database", "numpy", "application/x-npy"),
    (0, b"ID3", "media", "mp3", "audio/mpeg"),
    (0, b"OggS", "media", "ogg", "application/ogg"),
    (0, b"fLaC", "media", "flac", "audio/flac"),
    (8, b"WAVE", "media", "wav", "audio/wav"),
    (8, b"AVI ", "media", "avi", "video/x-msvideo"),
    (4, b"ftyp", "media", "mp4", "video/mp4"),
    (0, b"\x1aE\xdf\xa3", "media", "matroska", "video/x-matroska"),
    (0, b"\xd4\xc3\xb2\xa1", "capture", "pcap", "application/vnd.tcpdump.pcap"),
    (0, b"\xa1\xb2\xc3\xd4", "capture", "pcap", "application/vnd.tcpdump.pcap"),
    (0, b"\x0a\x0d\x0d\x0a", "capture", "pcapng", "application/x-pcapng"),
    (0, b"wOFF", "font", "woff", "font/woff"),
    (0, b"wOF2", "font", "woff2", "font/woff2"),
    (0, b"\x00\x01\x00\x00\x00", "font", "ttf", "font/ttf"),
    (0, b"\xfe\xed\xfe\xed", "key", "java keystore", "application/x-java-keystore"),
    (0, b"\x80\x04\x95", "binary", "pickle", "application/octet-stream"),
    (0, b"\x80\x05\x95", "binary", "pickle", "application/octet-stream"),
)  # fmt: skip
_IN_RIFF: Final = frozenset(("webp", "wav", "avi"))
_IN_ZIP: Final = (
    (b"word/", "document", "docx"),
    (b"xl/", "document", "xlsx"),
    (b"ppt/", "document", "pptx"),
    (b"META-INF/MANIFEST.MF", "archive", "jar"),
    (b"AndroidManifest.xml", "archive", "apk"),
    (b"mimetypeapplication/epub", "document", "epub"),
    (b"mimetypeapplication/vnd.oasis", "document", "opendocument"),
    (b".dist-info/", "archive", "wheel"),
)


def recognized(data: bytes) -> Guess | None:
    """What these bytes begin, if it has a sign of its own."""
    for offset, magic, kind, form, mime in _MAGIC:
        if data.startswith(magic, offset) and (form not in _IN_RIFF or data[:4] == b"RIFF"):
            if form == "java class" and int.from_bytes(data[4:8], "big") < 40:
                form, mime = "mach-o", "application/x-mach-binary"  # for several processors
            if form == "zip":
                return _zip(data, mime)
            details = _picture(data, form) if kind == "image" else {}
            return Guess(kind, form, 0.99, {"mime_type": mime, **details})
    if data[:2] == b"BM" and len(data) > 26 and int.from_bytes(data[2:6], "little") >= 26:
        details = {"mime_type": "image/bmp", **_picture(data, "bmp")}
        return Guess("image", "bmp", 0.95, details)
    if data[:2] == b"MZ" and len(data) > 64 and b"\0" in data[:64]:
        return Guess("executable", "pe", 0.97, {"mime_type": "application/x-msdownload"})
    return _der(data)


def _zip(data: bytes, mime: str) -> Guess:
    for sign, kind, form in _IN_ZIP:
        if sign in data[:65536]:
            return Guess(kind, form, 0.97, {"mime_type": mime})
    return Guess("archive", "zip", 0.99, {"mime_type": mime})


def _der(data: bytes) -> Guess | None:
    """A certificate or a key as bytes: an ASN.1 sequence that is exactly as long as it says."""
    if data[:2] != b"\x30\x82" or len(data) < 64:
        return None
    length = int.from_bytes(data[2:4], "big") + 4
    if length < len(data):
        return None
    kind = "certificate" if data[4:6] == b"\x30\x82" else "key"
    return Guess(kind, "der", 0.9, {"mime_type": "application/pkix-cert"})


def _picture(data: bytes, form: str) -> dict[str, Any]:
    try:
        width, height = _size(data, form)
    except (struct.error, ValueError):
        return {}
    return {"width": width, "height": height} if width and height else {}


def _size(data: bytes, form: str) -> tuple[int, int]:
    if form == "png":
        width, height = struct.unpack(">II", data[16:24])
    elif form == "gif":
        width, height = struct.unpack("<HH", data[6:10])
    elif form == "bmp":
        width, height = struct.unpack("<ii", data[18:26])
        height = abs(height)
    elif form == "jpeg":
        width, height = _jpeg(data)
    else:
        return 0, 0
    return width, height


def _jpeg(data: bytes) -> tuple[int, int]:
    place = 2
    while place + 9 < len(data) and data[place] == 0xFF:
        marker, length = data[place + 1], int.from_bytes(data[place + 2 : place + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[place + 5 : place + 9])
            return width, height
        place += 2 + max(2, length)
    return 0, 0
