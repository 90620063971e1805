"""The models that are served, and how they are loaded."""

from dataclasses import dataclass
from typing import Final

from halimede.cli.settings import (
    BOOL,
    COUNT,
    POSITIVE,
    POSITIVE_SECONDS,
    SECONDS,
    choice,
    form,
    repeated,
    setting,
)

MODELS: Final = "Models"


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The flags of the group "Models"."""

    model_repository: tuple[str, ...] = repeated(
        MODELS,
        form("DIRECTORY|URL"),
        "Directory that contains the models, or a bucket: s3://BUCKET/PATH, gs://BUCKET/PATH or "
        "as://ACCOUNT/CONTAINER/PATH. Required.",
        aliases=("model-store",),
    )
    model_control_mode: str = setting(
        MODELS,
        choice("none", "poll", "explicit", "ondemand"),
        "none",
        "When models are loaded and unloaded. none: all models are loaded at start. poll: like none, and changes "
        "in the repositories are picked up while the server runs. explicit: clients load and unload models. "
        "ondemand: like explicit, and the first inference request for a model loads it; the least recently used "
        "models are unloaded to make room.",
    )
    load_model: tuple[str, ...] = repeated(
        MODELS,
        form("MODEL"),
        "Model to load at start, in control modes explicit and ondemand; --load-model='*' alone loads all.",
    )
    repository_poll_secs: int = setting(
        MODELS,
        SECONDS,
        15,
        "Time between two checks for changes in the repositories, in control mode poll; 0 disables the checks.",
    )
    model_config_name: str = setting(
        MODELS,
        form("NAME"),
        "",
        "Use configs/NAME.pbtxt in place of config.pbtxt for models that have such a file.",
    )
    disable_auto_complete_config: bool = setting(
        MODELS, BOOL, False, "Do not fill in missing parts of model configurations from the model files."
    )
    model_namespacing: bool = setting(
        MODELS,
        BOOL,
        False,
        "Allow models of the same name in several repositories. Ensembles and calls of models look for models in "
        "their own repository first; clients reach only models whose name is unique. Without this flag, models "
        "whose name is not unique are not served.",
    )
    model_load_thread_count: int = setting(
        MODELS, POSITIVE, 4, "Number of models that are loaded in parallel."
    )
    model_load_retry_count: int = setting(
        MODELS, COUNT, 0, "Number of further attempts if a model version fails to load."
    )
    cpu_fallback: bool = setting(
        MODELS,
        BOOL,
        False,
        "Run instance groups of KIND_GPU on CPUs, with a warning, where their backend can use no GPU. Without this "
        "flag, such models are not loaded.",
    )
    model_memory_budget: str = setting(
        MODELS,
        form("BYTES|SHARE"),
        "",
        "Memory for all loaded models together, in control modes explicit and ondemand: a size, such as 2GiB or "
        "500MB, or a share of the memory available to the server, such as 80%.",
        shown_default="80% in control mode ondemand, else no limit",
    )
    ondemand_timeout_secs: int = setting(
        MODELS,
        POSITIVE_SECONDS,
        300,
        "Longest time a request waits for its model to be loaded, in control mode ondemand.",
    )
    cloud_cache_directory: str = setting(
        MODELS,
        form("DIRECTORY"),
        "",
        "Directory that keeps models from buckets on disk, so that a restart downloads only what has changed.",
        shown_default="$XDG_CACHE_HOME/halimede/models or ~/.cache/halimede/models",
    )
    cloud_cache_size: str = setting(
        MODELS,
        form("BYTES|SHARE"),
        "80%",
        "Disk space for models from buckets: a size, such as 200GiB, or a share of the disk, such as 80%. When it "
        "runs out, models that are not loaded are deleted, the least recently used first.",
    )
    repoagent_directory: str = setting(
        MODELS,
        form("DIRECTORY"),
        "/opt/tritonserver/repoagents",
        "Directory of repository agents: a model whose model_repository_agents lists the agent NAME uses the "
        "class in DIRECTORY/NAME/agent.py. The agent checksum is built in.",
    )
    repoagent_timeout_secs: int = setting(
        MODELS,
        POSITIVE_SECONDS,
        300,
        "Longest time one action of a repository agent may take. Then the agent is stopped, and the model fails "
        "to load.",
    )
