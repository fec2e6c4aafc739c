"""`tableless serve`."""

from __future__ import annotations

import functools
import gc
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from ..hints import install_hint
from ..serving.settings import AnswerSettings, ServerSettings
from .app import app
from .options import Only, Run, help_of, options_from_dataclasses


@app.command(epilog="Example: tableless serve runs/ml --port 8000 --items movies.csv")
@options_from_dataclasses
def serve(
    *,
    run: Run,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for every machine that can reach it.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="0 takes any that is free.")] = 8000,
    answers: AnswerSettings,
    items: Annotated[Path | None, typer.Option(help="A file with the items' titles.")] = None,
    interactions: Annotated[
        str | None, typer.Option(help="Data that says what users have had: it is not recommended again.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(envvar="TABLELESS_TOKEN", show_envvar=True, help=help_of(ServerSettings, "token")),
    ] = ServerSettings.token,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            help="A name that callers may use for this server, and whose pages may ask it; repeatable. Without it: any "
            "name, but on this machine alone (the usual --host) only localhost, 127.0.0.1 and [::1]."
        ),
    ] = None,
    limits: Annotated[ServerSettings, Only("follow", "max_ids", "max_body_bytes", "max_in_flight", "time_limit")],
) -> None:
    """Answer over HTTP: vectors, scores, recommendations, neighbours, and a page to look at them."""
    try:
        from ..serving.http.app import build_app
        from ..serving.http.app import serve as serve_app
        from ..serving.http.click_app import build_click_app
        from ..serving.http.refusals import allowed_names, is_loopback
    except ImportError as missing:
        raise ImportError(f"serving needs {missing.name}: {install_hint('serve')}") from None
    from ..recommender.clicks.click_runs import is_click_run
    from ..serving.click_door import load_clicks
    from ..serving.model import TrainedModel

    settings = replace(
        limits,
        token=token,
        reload_allowed=token is not None or is_loopback(host),
        allowed_hosts=allowed_names(host, allowed_host or ()),
    )
    if is_click_run(run):
        if metadata := [name for name, value in (("--items", items), ("--interactions", interactions)) if value]:
            raise ValueError(f"a click model has no use for {', '.join(metadata)}; leave it out")
        application = build_click_app(load_clicks(run), settings)
    else:
        load = functools.partial(
            TrainedModel.from_pretrained, **asdict(answers), metadata=items, interactions=interactions
        )
        gc.freeze()  # objects that exist by now stay: the search for garbage, as after a reload, is quick without them
        application = build_app(run, load, settings)

    def tell(address: str) -> None:
        print(f"Serving {run} at {address} (documentation: {address}/docs); Ctrl+C stops it.", flush=True)

    serve_app(application, host=host, port=port, settings=settings, on_ready=tell)
