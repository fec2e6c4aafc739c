"""Does ONNX Runtime compute what the module computes?"""

from pathlib import Path

import numpy as np
import onnxruntime
import torch

from tableless import EmbeddingScheme


def assert_onnx_agrees(scheme: EmbeddingScheme, path: Path, batches: list[list[int]]) -> None:
    """Export with a dynamic batch, and compare for batches of several sizes."""
    torch.onnx.export(
        scheme,
        (torch.arange(5),),
        path,
        dynamo=True,
        input_names=["ids"],
        dynamic_shapes={"ids": {0: torch.export.Dim.DYNAMIC}},
        verbose=False,
    )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for ids in batches:
        (vectors,) = session.run(None, {"ids": np.array(ids)})
        np.testing.assert_allclose(vectors, scheme(torch.tensor(ids)).detach().numpy(), atol=1e-5)
