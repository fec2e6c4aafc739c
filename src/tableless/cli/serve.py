"""`tableless serve`."""

from __future__ import annotations

import functools
import gc
from pathlib import Path
from typing import Annotated

import typer

from .app import app
from .options import Run, one_of


@app.command(epilog="Example: tableless serve runs/ml --port 8000 --items movies.csv")
def serve(
    run: Run,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for every machine that can reach it.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="0 takes any that is free.")] = 8000,
    precision: Annotated[str, typer.Option(help="fp32, or int8: quicker, with small errors.")] = "fp32",
    hot_ids: Annotated[int, typer.Option(help="Vectors kept ready for the ids asked for most, on each side.")] = 10_000,
    index: Annotated[str, typer.Option(help="exact, or faiss: quicker with very many items, and may miss some.")] = (
        "exact"
    ),
    items: Annotated[Path | None, typer.Option(help="A file with the items' titles.")] = None,
    interactions: Annotated[
        str | None, typer.Option(help="Data that says what users have had: it is not recommended again.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(envvar="TABLELESS_TOKEN", show_envvar=True, help="Ask callers for this bearer token."),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            help="A name that callers may use for this server, and whose pages may ask it; repeatable. Without it: any "
            "name, but on this machine alone (the usual --host) only localhost, 127.0.0.1 and [::1]."
        ),
    ] = None,
    max_ids: Annotated[int, typer.Option(help="Ids in a request.")] = 10_000,
    max_body_bytes: Annotated[int, typer.Option(help="Bytes in a request.")] = 1 << 20,
    max_in_flight: Annotated[int, typer.Option(help="Requests being answered; more are turned away with 503.")] = 128,
    time_limit: Annotated[float, typer.Option(help="Seconds for a request, from its first line to its answer.")] = 10.0,
) -> None:
    """Answer over HTTP: vectors, scores, recommendations, neighbours, and a page to look at them."""
    try:
        from ..serving.http.app import build_app
        from ..serving.http.hosts import allowed_names, is_loopback
        from ..serving.http.server import serve as serve_app
    except ImportError as missing:
        raise ImportError(f"serving needs {missing.name}: pip install 'tableless[serve]'") from None
    from ..serving.model import TrainedModel
    from ..serving.settings import ServerSettings

    settings = ServerSettings(
        token=token,
        reload_allowed=token is not None or is_loopback(host),
        allowed_hosts=allowed_names(host, allowed_host or ()),
        max_ids=max_ids,
        max_body_bytes=max_body_bytes,
        max_in_flight=max_in_flight,
        time_limit=time_limit,
    )
    load = functools.partial(
        TrainedModel.from_pretrained,
        precision=one_of("--precision", precision, "fp32", "int8"),
        hot_ids=hot_ids,
        index=one_of("--index", index, "exact", "faiss"),
        metadata=items,
        interactions=interactions,
    )
    gc.freeze()  # what is there by now stays: looking for garbage, as after a reload, is quick without it
    application = build_app(run, load, settings)

    def tell(address: str) -> None:
        print(f"Serving {run} at {address} (documentation: {address}/docs); Ctrl+C stops it.", flush=True)

    serve_app(application, host=host, port=port, settings=settings, on_ready=tell)
