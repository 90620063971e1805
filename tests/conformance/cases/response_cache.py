"""The response cache, and its statistics and metrics."""

from benchmarks.rival import TRITON
from tests.conformance.asking import get, infer, loaded, message, tensor
from tests.conformance.case import Case, case
from tests.conformance.cases.grpc_stream import stream
from tests.conformance.cases.metrics import scraped
from tests.conformance.cases.statistics import REFUSING, counted, numbers
from tests.conformance.differences import CACHED_ERRORS, CACHED_STREAM
from tests.conformance.servers import EXPLICIT, Setting
from tests.conformance.sources import CONFIG, IDENTITY
from tests.conformance.steps import Settled

ENABLED = CONFIG + "response_cache { enable: true }\n"
X = tensor("X", "INT32", [1, 2])
OTHER = tensor("X", "INT32", [1, 3])
CACHING = Setting(
    flags=(*EXPLICIT, "--cache-config=local,size=1048576", f"--cache-directory={TRITON / 'caches'}"),
    models=("add_sub",),
)
ENSEMBLE = """
platform: "ensemble"
input [{ name: "X" data_type: TYPE_INT32 dims: [-1] }]
output [{ name: "OUT" data_type: TYPE_INT32 dims: [-1] }]
response_cache { enable: true }
ensemble_scheduling { step [{
  model_name: "MODEL" model_version: -1 input_map { key: "X" value: "X" } output_map { key: "OUT" value: "OUT" } }] }
"""

CASES: list[Case] = [
    case(
        "a hit and two misses",
        *counted(
            40,
            infer("counted_40", X),
            infer("counted_40", X, id="7"),
            infer("counted_40", OTHER),
            text=ENABLED,
        ),
        setting=CACHING,
    ),
    case(
        "a hit of a batching model",
        *counted(
            41,
            *(infer("counted_41", tensor("X", "INT32", [[1], [2]])) for _ in range(2)),
            text=ENABLED + "max_batch_size: 4 dynamic_batching {}",
        ),
        setting=CACHING,
    ),
    case(
        "errors are not kept",
        *counted(42, *(infer("counted_42", X) for _ in range(2)), text=ENABLED, source=REFUSING),
        setting=CACHING,
        differs=CACHED_ERRORS,
    ),
    case(
        "over a stream",
        *counted(43, *(stream(message("counted_43", ("X", numbers(1, 2)))) for _ in range(2)), text=ENABLED),
        setting=CACHING,
        differs=CACHED_STREAM,
    ),
    case(
        "an ensemble",
        *loaded(
            "inner_44",
            CONFIG,
            IDENTITY,
            *loaded(
                "outer_44",
                ENSEMBLE.replace("MODEL", "inner_44"),
                "",
                infer("outer_44", X),
                infer("outer_44", X),
                Settled(get("/v2/models/outer_44/stats")),
                Settled(get("/v2/models/inner_44/stats")),
            ),
        ),
        setting=CACHING,
    ),
    case(
        "metrics of models",
        *loaded(
            "counted_45",
            ENABLED,
            IDENTITY,
            infer("counted_45", X),
            infer("counted_45", X),
            Settled(scraped('nv_cache_num.*model="counted_45"')),
            scraped("TYPE nv_cache"),
        ),
        setting=CACHING,
    ),
    case(
        "without a cache",
        *counted(46, infer("counted_46", X), infer("counted_46", X), text=ENABLED),
        scraped("nv_cache"),
    ),
]
