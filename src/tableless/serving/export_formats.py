"""The two formats of an exported module: how a file is written, and how it is run without the library."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    import onnx

Format = Literal["onnx", "torch"]
SUFFIXES: dict[Format, str] = {"onnx": ".onnx", "torch": ".pt2"}

_LARGEST_ONNX = 2**31 - 2**20  # a protobuf message ends at 2 GiB; the graph beside the weights is small


def write_file(module: nn.Module, path: Path, format: Format, *, inputs: tuple[str, ...], output: str) -> None:
    """Write a module of int64 [n] inputs as one file, weights included, for a batch of any size.

    A trace remembers the source lines it came from, with the paths of this machine; they are left out.
    """
    example = tuple(torch.arange(5) for _ in inputs)
    batch = torch.export.Dim("batch")
    shapes = tuple({0: batch} for _ in inputs)
    if format == "torch":
        program = torch.export.export(module, example, dynamic_shapes=shapes)
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)
        program._example_inputs = None  # the one thing in the archive that torch would pickle; nobody needs it
        archive = io.BytesIO()  # in memory: on a full disk torch's own writer ends the process
        torch.export.save(program, archive)
        path.write_bytes(archive.getbuffer())
        return
    model = _trace_onnx(module, example, shapes, path.name.split(".")[0], inputs, output)
    for part in (model.graph, *model.graph.node, *model.graph.input, *model.graph.output, *model.graph.value_info):
        del part.metadata_props[:]
    path.write_bytes(model.SerializeToString())


def open_file(path: Path, format: Format) -> Callable[..., Tensor]:
    """The file as a function of int64 [n] tensors."""
    if format == "torch":
        with path.open("rb") as file:
            return torch.export.load(file).module()
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [own.name for own in session.get_inputs()]

    def run(*inputs: Tensor) -> Tensor:
        (result,) = session.run(None, {name: ids.numpy() for name, ids in zip(names, inputs, strict=True)})
        return torch.from_numpy(result)

    return run


def _trace_onnx(
    module: nn.Module,
    example: tuple[Tensor, ...],
    shapes: tuple[dict[int, Any], ...],
    name: str,
    inputs: tuple[str, ...],
    output: str,
) -> onnx.ModelProto:
    _require_onnx()
    size = sum(tensor.numel() * tensor.element_size() for tensor in (*module.parameters(), *module.buffers()))
    if size > _LARGEST_ONNX:
        raise ValueError(
            f"{name} has {size / 1e9:.1f} GB of weights, and one ONNX file can hold 2.1 GB; export it as torch"
        )
    try:
        with _without_chatter():
            program = torch.onnx.export(
                module,
                example,
                dynamo=True,
                input_names=inputs,
                output_names=[output],
                dynamic_shapes=shapes,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        raise ValueError(f"{name} computes something that ONNX has no operator for; export it as torch") from error
    assert program is not None, "the exporter returns a program unless it is given a file"
    return program.model_proto


def _require_onnx() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as missing:
        raise ImportError(f"exporting to ONNX needs {missing.name}: pip install 'tableless[export]'") from None


@contextmanager
def _without_chatter() -> Iterator[None]:
    """The exporter warns of its own deprecations and of libraries that it could do without."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
