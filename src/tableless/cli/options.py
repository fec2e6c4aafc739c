"""Options of the commands. Those of a dataclass come from its fields, which hold the defaults.

A command that takes a dataclass gets an option for every field that has a `help` in its metadata:

    @app.command()
    @options_from_dataclasses
    def train(data: DataConfig, training: TrainConfig, seeds: int = 3) -> None: ...

Metadata of a field beside `help`: `option` is another name for it, `envvar` an environment variable that sets it.
`argument`: it is given without a name. `is_path`: it is shown as a path. `word_for_default`: one word for all that a
sequence has by default. Fields without `help` keep their defaults.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from ..hints import require_choice

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, as the last line, for machines.")]
Cache = Annotated[Path | None, typer.Option(help="Keep prepared data here, for the next time.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Run = Annotated[Path, typer.Argument(help="A run directory that `tableless train` has written.")]


@dataclass(frozen=True)
class Only:
    """Of a dataclass, only these fields are options: `Annotated[ModelConfig, Only("embedding_dim")]`."""

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)


@dataclass(frozen=True)
class _FieldOption:
    """A field of a dataclass as a parameter of a command."""

    field: Field[Any]
    hint: Any  # the type that the field has in its class

    def parameter(self) -> inspect.Parameter:
        metadata = self.field.metadata
        make = typer.Argument if metadata.get("argument") else typer.Option
        names = [metadata["option"]] if "option" in metadata else []
        described = make(*names, help=metadata["help"], envvar=metadata.get("envvar"))
        kind = inspect.Parameter.KEYWORD_ONLY
        annotation = Annotated[self._typed(), described]  # type: ignore[valid-type]
        return inspect.Parameter(self.field.name, kind, default=self._default(), annotation=annotation)

    def value(self, given: Any) -> Any:
        """What the field is set to if this was typed."""
        if get_origin(self.hint) is Sequence:
            if given == self.field.metadata.get("word_for_default"):
                return _default_of(self.field)
            return [part.strip() for part in given.split(",")]
        if get_origin(self.hint) is Literal:
            return one_of(self._name(), given, *get_args(self.hint))
        if self.field.metadata.get("is_path") and given is not None:
            return str(given)
        return given

    def _name(self) -> str:
        return self.field.metadata.get("option") or f"--{self.field.name.replace('_', '-')}"

    def _typed(self) -> Any:
        """What typer turns the text into. Choices stay text, so that `one_of` can refuse others in its own words."""
        if get_origin(self.hint) in (Sequence, Literal):
            return str
        return Path | None if self.field.metadata.get("is_path") else self.hint

    def _default(self) -> Any:
        default = _default_of(self.field)
        if get_origin(self.hint) is Sequence:
            return self.field.metadata.get("word_for_default") or ",".join(default)
        return inspect.Parameter.empty if default is MISSING else default


def options_from_dataclasses(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each field of the dataclasses it takes, and hand it the dataclasses ready-made."""
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    made: dict[str, tuple[type, list[_FieldOption]]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        kind, *notes = get_args(hints[name]) if get_origin(hints[name]) is Annotated else (hints[name],)
        if not is_dataclass(kind):
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name]))
            continue
        only = next((note.names for note in notes if isinstance(note, Only)), None)
        options = _options_of(typing.cast(type, kind), only)
        made[name] = typing.cast(type, kind), options
        parameters += [option.parameter() for option in options]

    @functools.wraps(command)
    def with_dataclasses(**values: Any) -> None:
        objects = {
            name: kind(**{option.field.name: option.value(values.pop(option.field.name)) for option in options})
            for name, (kind, options) in made.items()
        }
        command(**values, **objects)

    with_dataclasses.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_dataclasses.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_dataclasses


def help_of(kind: type, name: str) -> str:
    """The help text of a field, for an option that is declared by hand and means the same."""
    return str(next(field.metadata["help"] for field in fields(kind) if field.name == name))


def one_of(option: str, value: str, *choices: str) -> Any:
    """The value, if it is one of the choices."""
    require_choice(option, value, choices)
    return value


def was_typed(context: typer.Context, name: str | None) -> bool:
    """Does a value come from the command line, not from a default or the environment?"""
    source = context.get_parameter_source(name) if name else None
    return source is not None and source.name == "COMMANDLINE"


def _options_of(kind: type, only: Sequence[str] | None) -> list[_FieldOption]:
    hints = get_type_hints(kind)
    return [
        _FieldOption(field, hints[field.name])
        for field in fields(kind)
        if "help" in field.metadata and (only is None or field.name in only)
    ]


def _default_of(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()
