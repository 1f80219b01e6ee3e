"""TLS trust: the machine's certificates, or one pinned key."""
from __future__ import annotations

import hashlib
import hmac
import re
import ssl
from typing import Any

from .errors import SettingsError

_PIN = re.compile(r"sha256:([0-9a-fA-F]{64})")


class PinMismatch(ssl.SSLError):
    """The server's key isn't the pinned one."""

    def __init__(self) -> None:
        super().__init__("its key isn't the pinned one")


def context_for(pin: str | None) -> ssl.SSLContext:
    if pin is None:
        return ssl.create_default_context()
    match = _PIN.fullmatch(pin.strip())
    if match is None:
        raise SettingsError(
            "That isn't a pin: a pin is `sha256:` and 64 hexadecimal digits.", "The hub prints its pin at start."
        )
    return _pinned(bytes.fromhex(match.group(1)))


def _pinned(digest: bytes) -> ssl.SSLContext:
    """Accepts one key, whatever the certificate around it says. Checked before anything is sent."""

    def check(certificate: bytes | None) -> None:
        if certificate is None or not hmac.compare_digest(hashlib.sha256(public_key(certificate)).digest(), digest):
            raise PinMismatch

    class PinnedSocket(ssl.SSLSocket):
        def do_handshake(self, block: bool = False) -> None:
            super().do_handshake(block)
            check(self.getpeercert(binary_form=True))

    class PinnedObject(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            check(self.getpeercert(binary_form=True))

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    changeable: Any = context
    changeable.sslsocket_class = PinnedSocket
    changeable.sslobject_class = PinnedObject
    return context


def public_key(certificate: bytes) -> bytes:
    """The SubjectPublicKeyInfo of a DER certificate: the seventh member of what is signed, or the sixth without a version."""
    start, _ = _content(certificate, 0)
    at, _ = _content(certificate, start)
    members = 6 if certificate[at] == 0xA0 else 5
    for _ in range(members):
        _, at = _content(certificate, at)
    return certificate[at : _content(certificate, at)[1]]


def _content(der: bytes, at: int) -> tuple[int, int]:
    """Where the content of the element at a position starts and ends."""
    length, start = der[at + 1], at + 2
    if length & 0x80:
        count = length & 0x7F
        length, start = int.from_bytes(der[start : start + count], "big"), start + count
    return start, start + length
