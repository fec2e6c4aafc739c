"""The two formats of an exported module: how a file is written, how it is run without the library, and how far what it
computes is from what the model computes.
"""

from __future__ import annotations

import inspect
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from ...embedding.scheme import EmbeddingScheme, Precision, seeded
from ...hints import install_hint

if TYPE_CHECKING:
    import onnx

Format = Literal["onnx", "torch"]
SUFFIXES: dict[Format, str] = {"onnx": ".onnx", "torch": ".pt2"}

_LARGEST_ONNX = 2**31 - 2**20  # a protobuf message ends at 2 GiB; the graph beside the weights is small


def write_file(
    module: nn.Module,
    path: Path,
    format: Format,
    *,
    inputs: tuple[str, ...],
    output: str,
    example: tuple[Tensor, ...] | None = None,
) -> None:
    """Write a module as one file, weights included, for a batch of any size, and lists of any length.

    Its inputs are int64 [n] unless an `example` shows others. A trace remembers the source lines it came from, with the
    paths of this machine; they are left out.
    """
    example = example or tuple(torch.arange(5) for _ in inputs)
    batch = torch.export.Dim("batch")
    lengths = (torch.export.Dim(f"length_{place}", min=1) for place in range(len(example)))
    shapes = tuple(
        {0: batch} if own.ndim == 1 else {0: batch, 1: length} for own, length in zip(example, lengths, strict=True)
    )
    kinds = [own.kind for own in inspect.signature(module.forward).parameters.values()]
    shapes = (shapes,) if inspect.Parameter.VAR_POSITIONAL in kinds else shapes  # type: ignore[assignment]
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
        raise ImportError(f"exporting to ONNX needs {missing.name}: {install_hint('export')}") from None


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


CHECKED = 1000
"""Ids that an exported file is run on before it is kept."""
LARGEST_DIFFERENCE = 1e-5
"""Between fp32 and the original, as a share of the largest value."""
MEAN_COSINE, LOWEST_COSINE = 0.99, 0.9
"""Between int8 and the original, over all vectors, and for any one (a wrong hash would bring it near zero)."""

_EXTREMES = [0, 1, -1, 2**31, 2**63 - 1, -(2**63)]
_LISTED = 100  # of the ids that a scheme treats apart from others


@dataclass(frozen=True)
class Agreement:
    """How far a file is from the model on `checked` ids or pairs; for scores, both cosines are their correlation."""

    checked: int
    max_difference: float
    relative_difference: float  # of the largest value
    mean_cosine: float
    lowest_cosine: float

    def require(self, precision: Precision, name: str) -> None:
        """Refuse a file that is further away than its precision excuses (or has NaN where the model has none)."""
        close = self.relative_difference <= LARGEST_DIFFERENCE
        alike = self.mean_cosine >= MEAN_COSINE and self.lowest_cosine >= LOWEST_COSINE
        if precision == "fp32" and not close:
            raise ValueError(
                f"{name} is not kept: on {self.checked} ids it differs from the model by up to "
                f"{self.max_difference:.2g}, {self.relative_difference:.1g} of the largest value; "
                f"{LARGEST_DIFFERENCE:g} is allowed"
            )
        if precision == "int8" and not alike:
            raise ValueError(
                f"{name} is not kept: on {self.checked} ids the cosine to what the model says is "
                f"{self.mean_cosine:.4f}, at the lowest {self.lowest_cosine:.4f}; {MEAN_COSINE} and {LOWEST_COSINE} "
                "are asked. Export this run as fp32"
            )


def measure_agreement(exported: Callable[..., Tensor], original: Callable[..., Tensor], *inputs: Tensor) -> Agreement:
    """Run both on inputs [n]: the file in three batches, one of them a single id, the original in one."""
    sizes = [1, 7, len(inputs[0]) - 8]
    batches = zip(*(torch.split(own, sizes) for own in inputs), strict=True)
    with torch.no_grad():
        got = torch.cat([exported(*batch) for batch in batches]).double()
        wanted = original(*inputs).double()
    difference, largest = float((got - wanted).abs().max()), float(wanted.abs().max())
    if wanted.ndim == 1:  # scores: a level that all of them share would hide how they differ
        got, wanted = got - got.mean(), wanted - wanted.mean()
    cosine = torch.cosine_similarity(got, wanted, dim=-1)
    relative = difference / max(largest, 1e-30)
    return Agreement(len(inputs[0]), difference, relative, float(cosine.mean()), float(cosine.min()))


def ids_to_check(scheme: EmbeddingScheme, *, count: int = CHECKED, seed: int = 0) -> Tensor:
    """Ids over the whole int64 range, of every size and both signs; the rows of a closed scheme.

    Those that an open scheme treats apart, because they have a row or features of their own, are among them.
    """
    rows = scheme.num_known_ids
    if rows is not None:
        return torch.linspace(0, rows - 1, count, dtype=torch.float64).round().long()
    powers = [sign * 2**exponent for exponent in range(1, 63) for sign in (1, -1)]
    listed = [buffer for name, buffer in scheme.named_buffers() if name.rpartition(".")[-1] == "ids"]
    special = torch.cat([torch.tensor(_EXTREMES + powers), *(_spread(ids) for ids in listed)])
    anywhere = torch.randint(-(2**63), 2**63 - 1, (count - len(special),), generator=seeded(seed))
    return torch.cat([special, anywhere])


def _spread(ids: Tensor) -> Tensor:
    """Some of a list of ids, the first and the last among them."""
    if not len(ids):
        return ids
    return ids[torch.linspace(0, len(ids) - 1, _LISTED, dtype=torch.float64).round().long()]
