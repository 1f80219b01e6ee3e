"""Which hub and which key: the arguments, a saved context, the environment, the current context, or this machine's hub.

The order and the files are those of the command line (docs/cli.md, "Which hub, which key").
"""
from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from .errors import SettingsError

_DEFAULT = "http://127.0.0.1:7800"
# Somebody else can listen at `::1`, on the same port.
_LOOPBACK = {"localhost", "127.0.0.1"}


@dataclass(frozen=True)
class HubSettings:
    url: str
    key: str | None = field(repr=False)
    pin: str | None = None


def home(environment: Mapping[str, str] = os.environ) -> Path:
    return Path(environment.get("A2A_HOME") or Path.home() / ".a2a")


def awcp_home(environment: Mapping[str, str] = os.environ) -> Path:
    return Path(environment.get("AWCP_HOME") or Path.home() / ".AWCP")


def resolve(
    url: str | None = None,
    key: str | None = None,
    pin: str | None = None,
    context: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> HubSettings:
    environment = os.environ if environment is None else environment
    folder = home(environment)
    saved = _saved(folder, context)
    if url is None and context is not None and saved is not None:
        url = saved.url
    url = url or environment.get("ATTACHE_URL") or (saved.url if saved else None)
    # The key of a saved hub is sent to that hub only.
    if saved is not None and url != saved.url:
        saved = None
    if key is None and context is not None and saved is not None:
        key = saved.key
    key = key or environment.get("ATTACHE_KEY") or (saved.key if saved else None)
    local = _LocalHub.recorded(folder)
    if url is None:
        if local is not None and (key is not None or local.is_running()):
            url = local.url
        elif key is not None:
            url = _DEFAULT
        else:
            raise SettingsError(
                "No hub is running on this machine, and none was given.",
                "Start one with `attache up`, or pass url and key (or set ATTACHE_URL and ATTACHE_KEY).",
            )
    url = _checked(url)
    here = local if local is not None and local.is_at(url) else None
    if here is not None and here.is_running():
        # Others on this machine can listen on loopback too, and `localhost` may be `::1`: the hub is dialled where it said
        # that it listens, and its owner's key goes nowhere else.
        url = here.url
        key = _secret(here.key_file) if key is None else key
    if pin is None and url.startswith("https:"):
        pin = (here.pin() if here else None) or (saved.pin if saved else None) or environment.get("ATTACHE_PIN")
    return HubSettings(url, key, pin)


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and not parts.query and parts.path in ("", "/")
        _ = parts.port
    except ValueError:
        valid = False
    if not valid:
        raise SettingsError(f"`{url}` isn't the address of a hub.", "Use an address such as http://127.0.0.1:7800.")
    return url.rstrip("/")


def _saved(folder: Path, name: str | None) -> HubSettings | None:
    """The saved context with this name, or the current one."""
    path = folder / "contexts.json"
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        current, contexts = known.get("current"), known.get("contexts", {})
    except FileNotFoundError:
        current, contexts = None, {}
    except (ValueError, AttributeError) as cause:
        raise SettingsError(f"Can't parse {path}.", "Fix the file, or add your hubs again: attache context add") from cause
    wanted = name or current
    if wanted is None:
        return None
    if wanted not in contexts:
        raise SettingsError(f"No saved hub is named `{wanted}`.", "List them with `attache context`.")
    key_file = folder / "contexts" / f"{wanted}.key"
    key = _secret(key_file) if key_file.exists() else None
    return HubSettings(contexts[wanted]["hub"].rstrip("/"), key, contexts[wanted].get("pin"))


def _secret(path: Path) -> str:
    secret = path.read_text(encoding="utf-8").strip()
    if not secret or len(secret.split()) != 1:
        raise SettingsError(f"{path} doesn't contain a key.", "The file must contain only the key and a newline.")
    return secret


@dataclass(frozen=True)
class _LocalHub:
    url: str
    key_file: Path

    @classmethod
    def recorded(cls, folder: Path) -> _LocalHub | None:
        try:
            lines = (folder / "hub" / "address").read_text(encoding="utf-8").splitlines()
        except OSError:
            return None
        if not lines:
            return None
        return cls(lines[0], Path(lines[1]) if len(lines) > 1 else folder / "hub" / "admin.key")

    def is_at(self, url: str) -> bool:
        own, other = urlsplit(self.url), urlsplit(url)
        same_host = own.hostname == other.hostname or {own.hostname, other.hostname} <= _LOOPBACK
        return own.scheme == other.scheme and own.port == other.port and same_host

    def is_running(self) -> bool:
        """The hub holds a lock for as long as it runs."""
        try:
            import fcntl
        except ImportError:
            return False
        try:
            with open(self.key_file.with_name("hub.lock"), "rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def pin(self) -> str | None:
        try:
            return self.key_file.with_name("tls.pin").read_text(encoding="utf-8").strip()
        except OSError:
            return None
