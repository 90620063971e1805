"""`--model-repository` when it names buckets."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from halimede.cli.check.checks import cloud_cache_size
from halimede.cli.options import ServeOptions
from halimede.core.errors import InvalidArgumentError
from halimede.repository.cloud.locations import is_bucket_url

if TYPE_CHECKING:  # it needs an extra
    from halimede.repository.cloud.repositories import CloudRepositories


def model_repositories(options: ServeOptions) -> "tuple[tuple[Path, ...], CloudRepositories | None]":
    """The directories of models, and the repositories in buckets that some of them mirror, None for none.

    Raises:
        click.UsageError: a package is missing, or credentials or the cache's directory cannot be used.
    """
    names = sorted(set(options.model_repository))
    urls = [name for name in names if is_bucket_url(name)]
    paths = [Path(name) for name in names if not is_bucket_url(name)]
    if not urls:
        return tuple(paths), None
    try:
        from halimede.repository.cloud.repositories import CloudRepositories
    except ImportError as error:
        msg = (
            f"--model-repository {urls[0]}: buckets need {error.name}, which is not installed; install it with: "
            'pip install "halimede[cloud]"'
        )
        raise click.UsageError(msg) from error
    try:
        cloud = CloudRepositories(
            urls, options.cloud_cache_directory, cloud_cache_size(options.cloud_cache_size)
        )
    except InvalidArgumentError as error:
        raise click.UsageError(error.message) from error
    return (*paths, *cloud.directories), cloud
