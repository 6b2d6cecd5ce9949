"""A service from its settings: the socket, and one worker in this process or several under a supervisor."""

import socket
from collections.abc import Callable

from newcomer.errors import OptionError, OutputError, optional
from newcomer.service.settings import Settings
from newcomer.service.supervisor import Supervisor
from newcomer.service.tokens import VARIABLE, read_tokens

BACKLOG = 2048


def serve(settings: Settings, tell: Callable[[str], None]) -> None:
    """Serve until a signal says to stop; ``tell`` is told once where it listens and with what."""
    for package in ("fastapi", "uvicorn", "prometheus_client"):
        optional(package, "an HTTP service", "serve")
    optional("sqlalchemy", "a store of newcomers", "store")
    check_tokens(settings)
    with listening_on(settings) as listening:
        place = f"http://{settings.shown_host}:{listening.getsockname()[1]}"

        def ready(what: str) -> None:
            tell(f"listening on {place} with {what}")

        if settings.workers > 1:
            Supervisor(settings, listening, ready).run()
        else:
            from newcomer.service.worker import told, work

            work(settings, listening, lambda shared: ready(told(shared)))


def check_tokens(settings: Settings) -> None:
    """Refuse to listen to other machines without tokens."""
    if read_tokens(settings.tokens) is None and not settings.is_local:
        problem = f"{settings.host} may be reached from other machines, and no tokens are asked for"
        hint = f"give --tokens FILE (or {VARIABLE}) with what `newcomer token NAME --role read` prints"
        raise OptionError(f"{problem}; {hint}, or listen on 127.0.0.1")


def listening_on(settings: Settings) -> socket.socket:
    """A socket that listens on the address."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((settings.host, settings.port))
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        place = f"{settings.shown_host}:{settings.port}"
        raise OutputError(
            f"cannot listen on {place} ({error.strerror or error}); choose another --port or --host"
        ) from None
    made.set_inheritable(True)
    return made
