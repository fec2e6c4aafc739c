"""Everything that the OpenAPI schema allows, and much that it does not, is tried on the application."""

import contextlib

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from .tiny_run import app_for, write_run

EXAMPLES = 15  # of each operation, for right and for wrong requests

# A whole number of ids: that there are 8 bytes to each can't be said in a schema.
schemathesis.openapi.media_type(
    "application/octet-stream", st.lists(st.binary(min_size=8, max_size=8), max_size=5).map(b"".join)
)


@pytest.fixture(scope="module")
def schema(tmp_path_factory):
    run = write_run(tmp_path_factory.mktemp("runs") / "run", kind="string")
    return schemathesis.openapi.from_asgi("/openapi.json", app_for(run))


@pytest.mark.parametrize(("mode", "least"), [(GenerationMode.POSITIVE, 11), (GenerationMode.NEGATIVE, 8)])
def test_every_answer_is_one_that_the_schema_announces(schema, mode, least):
    tried = set()
    for found in schema.get_all_operations():
        operation = found.ok()

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            phases=[Phase.explicit, Phase.generate],  # shrinking a failure takes minutes here
            suppress_health_check=list(HealthCheck),
        )
        def try_out(case):
            assume(mode is GenerationMode.NEGATIVE or not (holds_floats(case.body) or has_no_pairs(case.body)))
            case.call_and_validate()
            tried.add((case.operation.method, case.operation.path))

        with contextlib.suppress(Unsatisfiable):  # there is nothing to get wrong about /healthz
            try_out()
    assert len(tried) >= least


def holds_floats(body):
    """JSON Schema takes 7.0 for an integer; as an id it is refused."""
    if isinstance(body, dict):
        return any(map(holds_floats, body.values()))
    return any(map(holds_floats, body)) if isinstance(body, list) else isinstance(body, float)


def has_no_pairs(body):
    """A schema can't say that two lists must be equally long."""
    return isinstance(body, dict) and "users" in body and len(body["users"]) not in (1, len(body["items"]))
