"""What a service is told when it starts: where it listens, over which model and store, and how much it takes on."""

import json
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from newcomer.errors import OptionError, shown

LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
LEAST = {
    "port": 0,
    "workers": 1,
    "at_once": 1,
    "queue": 0,
    "streams": 0,
    "timeout": 1,
    "grace": 0,
    "max_body": 1_000,
    "max_facts": 1,
    "max_questions": 1,
}
MOST = {"port": 65_535, "workers": 256, "at_once": 256}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of a service; a wrong one is an error.

    ``at_once`` requests are worked on by each worker, ``queue`` others wait for their turn, and more are refused; a
    request may take ``timeout`` seconds. ``hosts`` are names beside the usual ones by which a service on a loopback
    address may be called.
    """

    run: str
    store: str = ""
    host: str = "127.0.0.1"
    port: int = 8765
    workers: int = 1
    device: str = "cpu"
    tokens: str | None = None
    cors: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    docs: bool = False
    log_facts: bool = False
    at_once: int = 2
    queue: int = 64
    streams: int = 8
    timeout: int = 30
    grace: int = 30
    max_body: int = 8_388_608
    max_facts: int = 10_000
    max_questions: int = 100

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            value, most = getattr(self, name), MOST.get(name)
            if not least <= value <= (value if most is None else most):
                end = "" if most is None else f" to {most:,}"
                raise OptionError(f"{_option(name)} is {value}, but must be an integer from {least:,}{end}")
        for origin in self.cors:
            parts = urlsplit(origin)
            if (
                parts.scheme not in ("http", "https")
                or not parts.netloc
                or origin != f"{parts.scheme}://{parts.netloc}"
            ):
                hint = "give one as a browser sends it: https://example.org, without a path"
                raise OptionError(f"--cors {shown(origin)} is no origin; {hint}")
        if not self.store:
            object.__setattr__(self, "store", str(store_beside(Path(self.run))))

    @property
    def is_local(self) -> bool:
        """Whether only this machine can call."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def shown_host(self) -> str:
        """The address as it stands in a URL."""
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def names(self) -> frozenset[str] | None:
        """The names by which the service may be called; None where any will do."""
        return frozenset((*LOCAL_NAMES, self.shown_host, *map(str.lower, self.hosts))) if self.is_local else None

    def to_json(self) -> str:
        """The settings as a worker is told them."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Settings":
        """What `to_json` wrote."""
        given: dict[str, Any] = json.loads(text)
        return cls(**given | {name: tuple(given[name]) for name in ("cors", "hosts")})


def store_beside(run: Path) -> Path:
    """The SQLite file that newcomers are kept in where no store is named: beside the model's folder, not in it."""
    whole = run.absolute() if run.name in ("", "..") else run
    whole = whole.resolve() if whole.name in ("", "..") else whole
    return whole.with_name(f"{whole.name}.newcomers.db")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
