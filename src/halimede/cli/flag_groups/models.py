"""The models that are served, and how they are loaded."""

from dataclasses import dataclass
from typing import Final

from halimede.cli.settings import BOOL, COUNT, POSITIVE, TEXT, Status, choice, form, repeated, setting

MODELS: Final = "Models"


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The flags of the group "Models" that do something."""

    model_repository: tuple[str, ...] = repeated(
        MODELS,
        form("DIRECTORY|URL"),
        "Directory of models, or a bucket's: s3://BUCKET/PATH, gs://BUCKET/PATH or as://ACCOUNT/CONTAINER/PATH. "
        "Required; repeat it to serve several.",
        aliases=("model-store",),
    )
    model_control_mode: str = setting(
        MODELS,
        choice("none", "poll", "explicit", "ondemand"),
        "none",
        "How models come and go: all at start (none), all at start and as the repositories change (poll), "
        "by request (explicit), or by request and by themselves (ondemand): a model is loaded when the first "
        "inference request for it comes, and those that were used longest ago make room for it.",
    )
    load_model: tuple[str, ...] = repeated(
        MODELS,
        form("MODEL"),
        "Model to load at start, in the control modes explicit and ondemand. Repeat it for several; '*' alone "
        "stands for all.",
    )
    repository_poll_secs: int = setting(
        MODELS,
        COUNT,
        15,
        "Seconds between two looks at the repositories, in control mode poll; 0 for never.",
    )
    model_config_name: str = setting(
        MODELS,
        TEXT,
        "",
        "Use configs/NAME.pbtxt in a model's directory, where it exists, in place of config.pbtxt.",
    )
    disable_auto_complete_config: bool = setting(
        MODELS, BOOL, False, "Do not complete configurations from the models' files."
    )
    model_namespacing: bool = setting(
        MODELS,
        BOOL,
        False,
        "Whether several repositories may hold models of the same name. Ensembles and models see those of their own "
        "repository first; requests reach a model only if no other has its name. Otherwise such models are not served.",
    )
    model_load_thread_count: int = setting(MODELS, POSITIVE, 4, "How many models load at once.")
    model_load_retry_count: int = setting(
        MODELS, COUNT, 0, "Further attempts at a model version that failed to load."
    )
    model_memory_budget: str = setting(
        MODELS,
        form("BYTES|SHARE"),
        "",
        "Memory that models may take together, in the control modes explicit and ondemand: 2GiB, 500MB, or a share "
        "of the memory that the server may use, as 80%.",
        shown_default="80% in control mode ondemand, else any",
    )
    ondemand_timeout_secs: int = setting(
        MODELS,
        POSITIVE,
        300,
        "Longest time, in seconds, that a request waits for its model to be loaded, in control mode ondemand.",
    )
    cloud_cache_directory: str = setting(
        MODELS,
        form("DIRECTORY"),
        "",
        "Where models of buckets are kept on disk, so that a restart fetches only what has changed.",
        shown_default="$XDG_CACHE_HOME/halimede/models or ~/.cache/halimede/models",
    )
    cloud_cache_size: str = setting(
        MODELS,
        form("BYTES|SHARE"),
        "80%",
        "Disk that models of buckets may take together: bytes (200GiB) or a share of the disk. As it runs out, models "
        "that are not loaded are removed from it, those that were used longest ago first.",
    )
    repoagent_directory: str = setting(
        MODELS,
        form("DIRECTORY"),
        "/opt/tritonserver/repoagents",
        "Directory of repository agents: the agent NAME of a model's model_repository_agents is the class in "
        "DIRECTORY/NAME/agent.py. The agent checksum is always there.",
    )
    repoagent_timeout_secs: int = setting(
        MODELS,
        POSITIVE,
        300,
        "Longest time, in seconds, that a repository agent may take for one action; then it is stopped, and the load "
        "fails.",
    )
    strict_model_config: bool = setting(
        MODELS,
        BOOL,
        False,
        "Use --disable-auto-complete-config.",
        status=Status.DEPRECATED,
    )
