"""A trained run over HTTP; `tableless serve` starts it. Needs the extra `serve`."""
