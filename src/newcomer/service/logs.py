"""The log of a service: a line of JSON for each request and event, on standard error.

It has no facts and no names of entities, unless that is asked for.
"""

import json
import logging
import os
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

FRAMES = 8  # of the way to a fault


def log(event: str, **about: Any) -> None:
    """Write one line: when, in which process, what, and all that is known of it.

    Of an exception it has the kind and where it came from; what it says may name entities.
    """
    entry: dict[str, Any] = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event}
    entry |= {"pid": os.getpid()} | about
    fault = entry.get("fault")
    if isinstance(fault, BaseException):
        entry |= {"fault": type(fault).__name__, "trace": "".join(traceback.format_tb(fault.__traceback__, -FRAMES))}
    sys.stderr.write(json.dumps(entry, default=str) + "\n")  # one call: lines of threads do not mix
    sys.stderr.flush()


class ToLog(logging.Handler):
    """What the libraries say from warnings on."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write it as a line."""
        fault = record.exc_info[1] if record.exc_info else None
        log("library", name=record.name, level=record.levelname, said=record.getMessage(), fault=fault)


def catch_libraries() -> None:
    """Send what libraries say into the log."""
    logging.basicConfig(handlers=[ToLog()], level=logging.WARNING, force=True)
    logging.captureWarnings(True)
