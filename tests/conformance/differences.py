"""The differences that are meant, each with its reason."""

import re
from dataclasses import dataclass

from tests.conformance.answers import Value
from tests.conformance.compare import ABSENT, Line

ANYTHING = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference that is meant.

    Attributes:
        reason: why it is meant, in one sentence.
        paths: a pattern of the paths of the values that may differ.
        theirs, ours: the values that are meant; any, if none is given.
        subjects: a pattern of the modules whose cases may differ so.
    """

    reason: str
    paths: str = ""
    theirs: Value | object = ANYTHING
    ours: Value | object = ANYTHING
    subjects: str = ""

    def explains(self, subject: str, line: Line) -> bool:
        """Whether it is meant that the values of a case of that module differ so."""
        return bool(
            re.search(self.paths, line.path)
            and re.search(self.subjects, subject)
            and self.theirs in (ANYTHING, line.theirs)
            and self.ours in (ANYTHING, line.ours)
        )


CLIENT_MISTAKE = Difference(
    "A mistake of the client is answered by 400, not by 500, so that nobody looks for it in the server.",
    paths=r"(^|: )status$",
    theirs=500,
    ours=400,
    subjects="^(http_.*|index|tracing|shared_memory)$",
)
ENSEMBLE_PARAMETERS = Difference(
    "A response of an ensemble has no parameters of sequences; tritonserver adds them, though nothing is a sequence.",
    paths=r"parameters\.sequence_(id|start|end)(\.\w+)?$",
    ours=ABSENT,
)
OWN_METRICS = Difference(
    "There are further metrics: histograms of times and of batch sizes, how long a load takes, memory of models.",
    paths=r"nv_inference_\w+_histogram(_us|_ms)?(_bucket|_sum|_count)?( |\{)|nv_model_load_duration_secs|halimede_",
    theirs=ABSENT,
    subjects="^(metrics|warmup)$",
)
GONE_STATE = Difference(
    "A load or unload is answered when the versions that it removes are gone; 2.51 may answer while they are unloaded.",
    paths=r"\.state$",
    theirs="UNLOADING",
    ours="UNAVAILABLE",
    subjects="^model_control$",
)
GONE_REASON = Difference(
    "The index gives the reason 'unloaded' for a version as soon as what removed it is answered.",
    paths=r"\.reason$",
    theirs=ABSENT,
    ours="unloaded",
    subjects="^model_control$",
)
EVERYWHERE = (CLIENT_MISTAKE, ENSEMBLE_PARAMETERS, OWN_METRICS, GONE_STATE, GONE_REASON)
"""Those that hold for all cases; the others are named by the cases that show them."""

SMALL_MEMORY = Difference(
    "If shared memory is too small for an output, gRPC answers INVALID_ARGUMENT, not INTERNAL: it is the client's "
    "mistake.",
    paths=r"(^|: )code$",
    theirs="INTERNAL",
    ours="INVALID_ARGUMENT",
)
RESERVED_KEY = Difference(
    "Shared memory whose key has the prefix of Triton's own is refused as such, as in later versions.",
    paths=r": (status|code|details|body\.error)$",
)
ANY_OFFSET = Difference(
    "A region of shared memory may begin at any offset; tritonserver requires a multiple of the page size.",
    paths=r"^step [2-5]: (status|code|details|body|response)",
)
CONTENT_LENGTH_AND_CHUNKED = Difference(
    "A request with both Content-Length and chunks is refused, as a proxy may see another request in it.",
    paths=r"^(status|body\.error)$",
)
OWN_TIMEOUT = Difference(
    "A request's own `timeout` holds in every queue; tritonserver ignores it in the default scheduler, and in dynamic "
    "batching unless the model has a default timeout and lets requests shorten it.",
)
MALFORMED_HTTP = Difference(
    "What is no HTTP is answered by 400 with what is wrong with it, where tritonserver closes the connection.",
)
BAD_COMPRESSION = Difference(
    "A body that cannot be decompressed is refused as such; tritonserver goes on with what it could decompress.",
    paths=r"^(status|body\.error)$",
)
LENGTH_OF_JSON = Difference(
    "A length of the JSON that is no number is refused, as later versions do; 2.51 reads 0 or the digits in front.",
    paths=r"^(status|body\.error)$",
)
COUNTS_GO_ON = Difference(
    "Without latency counters, counters of requests and executions go on; tritonserver leaves them at 0.",
    paths=r"nv_(inference_(request_success|request_failure|count|exec_count)|cache_num_(hits|misses)_per_model)\{",
)
NO_NAME_OF_A_MODEL = Difference(
    "The load of a name that no model can have is refused as such, as in later versions; 2.51 looks for the model.",
)
CONTENTS_OF_NO_INPUT = Difference(
    "Data of `raw_input_contents` that belong to no input are refused; tritonserver ignores them.",
)
HEAD_OF_HEALTH = Difference(
    "Health checks can be asked with HEAD, as some load balancers do; tritonserver answers 405.",
    paths=r"^(status|headers|body|response)",
)
UNKNOWN_TRACE_LEVEL = Difference(
    "A trace level that does not exist is refused, as it is a slip; tritonserver ignores it.",
)
NEGATIVE_COUNT = Difference(
    "A negative number of instances is refused; tritonserver makes one instance of it.",
)
EMPTY_BODY = Difference(
    "An inference without a body is refused; tritonserver runs the model with an input of no elements.",
    paths=r"^(status|body|headers|response)",
)
LOAD_MISTAKE = Difference(
    "A load whose body cannot be read is a mistake of the client too, and answered by 400.",
    paths=r": status$",
    theirs=500,
    ours=400,
)
GENERATE_STATUS = Difference(
    "An error of generate has the status of its kind, as an inference's has; 2.51 answers 400, or even 200.",
    paths=r"^status$",
)
GENERATE_ERROR = Difference(
    "An error after a response of generate has its own text and status; 2.51 says that there were several responses.",
    paths=r"^(status|body\.error)$",
)
MISSING_OUTPUT = Difference(
    "An output that the client asked for and the model did not send is an error; tritonserver answers without it.",
    paths=r"^(status|body\.)",
)
FILE_OUTSIDE = Difference(
    "A model's file must lie in the directory of its version, so that no configuration runs any file of the machine.",
)
BYTE_ORDER_MARK = Difference(
    "A byte order mark at the beginning of a configuration is skipped, as editors write it; tritonserver refuses it.",
)
VERSION_ZERO = Difference(
    "Versions begin with 1, as the documentation of Triton says, so that a directory 0 is not one; 2.51 loads it.",
)
OUTPUT_NAMED = Difference(
    "The error names the output, as later versions do; 2.51 leaves the name out.",
    paths=r"^body\.error$",
)
NAN_IS_NO_CLASS = Difference(
    "NaN is no class with a high value and comes last; where tritonserver puts it depends on how it sorts.",
    paths=r"data\[\d\]$",
)
REQUIRED_INPUT = Difference(
    "A missing required input is refused even if an optional one is there; tritonserver only counts the inputs.",
)
OVERFLOW = Difference(
    "A shape with too many elements is refused as such, as in later versions; 2.51 compares it with the data.",
    paths=r"^body\.error$",
)
OUT_OF_RANGE = Difference(
    "A number that its datatype or parameter cannot hold is refused; tritonserver serves another number instead.",
)
DECODED_NAME = Difference(
    "A name in a path is percent-decoded, as clients encode it; tritonserver looks it up as it was sent.",
)
MODEL_ERRORS_FAIL = Difference(
    "A model's own error responses count as failures; tritonserver counts them as successes.",
    paths=r"nv_inference_request_success|nv_inference_request_failure|_duration_us|inference_stats|batch_stats",
)
CACHED_ERRORS = Difference(
    "Error responses of models are not kept in the response cache; tritonserver answers the next equal request with "
    "status 200 and no outputs.",
)
CACHED_STREAM = Difference(
    "A response from the cache is sent over a stream as any other; tritonserver's is the error 'response output count "
    "mismatch'.",
)
UNKNOWN_TRACE_SETTING = Difference(
    "A setting of --trace-config that there is not is refused, as it is a slip; tritonserver ignores it.",
)
TEXT_IDS = Difference(
    "A model may take correlation ids as strings; 2.51 makes a tensor of them that it then refuses.",
)
IDS_OF_ITERATIVE = Difference(
    "The id and the flags of a client do not matter to an iterative model; tritonserver wants START, and then hangs.",
)
RESTRICTED_KEY = Difference(
    "A key with capitals can be sent over gRPC, whose metadata has none; with tritonserver no client can send it.",
    paths=r"^(code|details|response\..*)$",
)
OUTSIDE_THE_REPOSITORY = Difference(
    "A name that leads out of the model's directory, or of the repository, is refused; 2.51 follows it.",
)
OUTPUT_TWICE = Difference(
    "An output that a request names twice is refused, as in later versions; 2.51 uses only the first.",
)
NAME_TWICE = Difference(
    "Two inputs, outputs or batch outputs of one name are refused; tritonserver uses only one of them.",
)
UNKNOWN_ENUM = Difference(
    "A number that an enum does not have is refused at load; 2.51 loads a model that nobody can use, or says AUTO.",
)
TEXT_IN_CONFIGURATION = Difference(
    "A text of a configuration that is not UTF-8 is refused, as neither JSON nor gRPC can carry it.",
)
NEEDED_MODEL_DELETED = Difference(
    "An ensemble whose models serve is loaded though a directory is gone; 2.51 loads it too, but answers 500.",
    paths=r": (status|body\.error)$",
)
NEEDED_MODEL_NAMED = Difference(
    "The load of an ensemble and the index say which model it lacks; 2.51 keeps an older reason, or gives none.",
    paths=r"(: status|body\.error|\.reason)$",
)
UNREADABLE_UNLOAD = Difference(
    "A body of an unload that cannot be read is refused, as that of a load is; 2.51 does not look at it.",
    paths=r"^step 3: (status|body\.error)$",
)
NO_BASE64 = Difference(
    "A file of a load that is no base64 is refused; 2.51 loads what it can decode of it.",
)
READY_NAMED = Difference(
    "The error names `ready`, as in later versions; 2.51 only says that something is no boolean.",
    paths=r"body\.error$",
    theirs="attempt to access JSON non-boolean as boolean",
)
RESPONSE_STATS = Difference(
    "Responses of decoupled Python models are counted one by one; 2.51 counts them for no Python model.",
    paths=r"response_stats",
)
TWO_OF_ONE_NAME = Difference(
    "Two outputs of one name have each its datatype and shape; tritonserver gives the first those of both.",
    paths=r"^response\.outputs\[\d\]\.(datatype|shape)",
)
NO_EXECUTE = Difference(
    "A Python model without `execute` is refused at load, not at its first request.",
)
AFTER_A_CRASH = Difference(
    "After a crash of its process, a model's next request waits for the new process and succeeds.",
    paths=r"^step 4: ",
)
READY_AFTER_AN_UNLOAD = Difference(
    "A version that failed to load keeps the server from being ready only until its model is unloaded; in 2.51 it does "
    "so until the process ends.",
    paths=r"(^|: )status$",
    theirs=400,
    ours=200,
)
CODE_OF_AN_ERROR = Difference(
    "The error of a called model keeps its code, as in later versions; in 2.51 it is that of an internal error.",
    paths=r"^body\.error$",
)
IDENTIFIERS = Difference(
    "Over gRPC a model is reached by its repository and name, too; tritonserver serves no models of equal names.",
)
UNKNOWN_WITH_NAMESPACES = Difference(
    "An unknown model is answered by 404, with namespaces as without; tritonserver answers 400 with them.",
    paths=r"status$",
    theirs=400,
    ours=404,
)
NEEDED_MODELS_ONLY = Difference(
    "An ensemble loads the models of its steps; tritonserver also loads those of equal names in other repositories.",
    paths=r"row \d$",
)
OWN_REPOSITORY_FIRST = Difference(
    "A model that calls others reaches those of its own repository first; tritonserver refuses names that others have.",
)
LIST_OF_MODELS = Difference(
    "The models that are ready are listed at `GET /v2/models`; tritonserver knows no such path.",
    paths=r"^(status|body)",
)
