"""uvicorn around the application: one process, a graceful stop, and nothing of a request in the log."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from ..settings import ServerSettings
from .limits import guarded


def serve(app: FastAPI, *, host: str, port: int, settings: ServerSettings, on_ready: Callable[[str], None]) -> None:
    """Answer until SIGTERM or Ctrl+C: then accept nothing more, finish what was begun, and return.

    Port 0 takes any that is free; `on_ready` is told the address.
    """
    listener = _listen(host, port)
    _allow_many_connections()
    config = uvicorn.Config(
        app,
        http=guarded(settings),
        ws="none",
        access_log=False,  # its lines would hold ids
        log_level="warning",
        server_header=False,
        timeout_keep_alive=math.ceil(settings.head_time_limit),
        timeout_graceful_shutdown=math.ceil(settings.time_limit) + 1,
    )
    before = signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises it again when it has stopped
    try:
        on_ready(f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}")
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        pass  # raised again likewise
    finally:
        signal.signal(signal.SIGTERM, before)
        listener.close()


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        if os.name != "nt":  # on Windows it would let two programs listen on one port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)  # connections are taken from here on, and answered as soon as uvicorn is up
    except OSError as error:
        listener.close()
        raise OSError(f"{host}:{port} can't be listened on ({error.strerror}); give another --host or --port") from None
    except OverflowError:
        listener.close()
        raise ValueError(f"--port is {port}; it must be from 0 to 65535") from None
    return listener


def _allow_many_connections() -> None:
    """Each is a file; the usual 1024 would be few. Windows has no such limit, and no module for it."""
    try:
        import resource
    except ImportError:
        return
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS calls it endless, and refuses that number
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
