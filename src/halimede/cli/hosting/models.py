"""`halimede models`: the models of a host."""

import click

from halimede.cli.hosting.client import HostClient, MissingError, host_options
from halimede.cli.tables import table


@click.command("models")
@host_options
def command(endpoint_url: str, region: str) -> int:
    """List the models of a host."""
    host = HostClient(endpoint_url, region)
    rows = []
    for entry in host.every("sagemaker", "list_models", "Models"):
        try:
            model = host.call("sagemaker", "describe_model", ModelName=entry["ModelName"])
        except MissingError:  # it was deleted meanwhile
            continue
        container = model.get("PrimaryContainer") or model["Containers"][0]
        rows.append(
            [
                model["ModelName"],
                container.get("Mode", "SingleModel"),
                container.get("Image", ""),
                container.get("ModelDataUrl", ""),
                f"{model['CreationTime']:%Y-%m-%d %H:%M:%S}",
            ]
        )
    if rows:
        click.echo(table(["Model", "Mode", "Image", "Data", "Created"], sorted(rows)))
    else:
        click.echo("There are no models.")
    return 0
