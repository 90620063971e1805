"""`halimede tune`: the settings with which a model serves best."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from halimede.bench.data import Making
from halimede.bench.errors import BenchError
from halimede.bench.measure import Measuring
from halimede.bench.results import write_text
from halimede.bench.workload import Workload
from halimede.cli.bench import values
from halimede.cli.bench.progress import ProgressLine
from halimede.cli.tables import table
from halimede.tune import knobs as knob_set
from halimede.tune.explain import Effect, difference, refine, verdict
from halimede.tune.goal import Goal, Point
from halimede.tune.knobs import FRONT_ENDS, KINDS, Knob, Setting, Target
from halimede.tune.prepare import targets
from halimede.tune.report import HEADINGS, as_json, html, rows
from halimede.tune.study import Outcome, Study
from halimede.tune.trial import Job, measure_setting

_SHOWN = 10
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("tune", short_help="Find the best settings for a model.")
@click.option("-m", "--model", required=True, metavar="NAME", help="Model to measure.")
@click.option(
    "--model-repository", "repository", required=True, type=click.Path(path_type=Path), help="Its repository."
)
@click.option(
    "--goal", default="most throughput", show_default=True, metavar="TEXT",
    help="Such as 'most throughput at p99 <= 20ms', 'least memory at 200 requests/s', 'least p99 at 50 requests/s'.",
)  # fmt: skip
@click.option(
    "--also",
    multiple=True,
    metavar="NAME",
    help="Another model to tune, such as one that is called with BLS.",
)
@click.option(
    "--vary", metavar="LIST", help=f"Settings to vary, separated by commas. [default: {','.join(KINDS)}]"
)
@click.option(
    "--provider",
    multiple=True,
    metavar="NAME",
    help="Provider to try: openvino-backend, openvino, cuda, tensorrt.",
)
@click.option(
    "--most-batch", type=click.IntRange(min=1), default=64, show_default=True, help="Maximum max_batch_size."
)
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    default=30,
    show_default=True,
    help="Number of settings to measure.",
)
@click.option(
    "--study", "path", type=_FILE, help="File that keeps the measurements. [default: tune-MODEL.journal]"
)
@click.option(
    "-i",
    "--protocol",
    type=click.Choice(["http", "grpc"]),
    default="http",
    show_default=True,
    help="Protocol of the load.",
)
@click.option(
    "-b", "--batch-size", type=click.IntRange(min=1), default=1, show_default=True, help="Rows per request."
)
@click.option(
    "--shape", multiple=True, metavar="NAME:SIZES", help="Shape of an input with variable dimensions."
)
@click.option(
    "--input-data", type=click.Path(path_type=Path, exists=True), help="File or directory, as for bench."
)
@click.option("--streaming", is_flag=True, help="As for bench.")
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    help="Maximum number of requests at once.",
)
@click.option(
    "-p",
    "--measurement-interval",
    type=values.Duration("ms"),
    default="1s",
    show_default=True,
    help="Length of a window.",
)
@click.option("--processes", type=click.IntRange(min=0), default=0, help="Processes that send the load.")
@click.option(
    "--random-seed", type=int, default=0, show_default=True, help="Seed of the search and of the data."
)
@click.option("--html", "html_file", type=_FILE, help="Write a page with the Pareto front.")
@click.option("--json", "json_file", type=_FILE, help="Write the results for programs.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory to write each MODEL.pbtxt to.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show progress even without a terminal.")
@click.argument("serve_flags", nargs=-1, type=click.UNPROCESSED)
def command(
    model: str,
    repository: Path,
    goal: str,
    also: tuple[str, ...],
    vary: str | None,
    provider: tuple[str, ...],
    most_batch: int,
    trials: int,
    path: Path | None,
    protocol: str,
    batch_size: int,
    shape: tuple[str, ...],
    input_data: Path | None,
    streaming: bool,
    concurrency: int,
    measurement_interval: float,
    processes: int,
    random_seed: int,
    html_file: Path | None,
    json_file: Path | None,
    output: Path | None,
    verbose: bool,
    serve_flags: tuple[str, ...],
) -> int:
    """Measure a model with many settings, and report which are best for a goal, and why.

    For each setting, the command starts a server on free ports with a changed copy of the repository, and measures it
    with `halimede bench`. The repository itself is not changed. For an ensemble, its models are tuned. An interrupted
    search can be continued: its file keeps all measurements.

    SERVE_FLAGS after -- are flags of `halimede serve`.
    """
    try:
        wanted = Goal.parse(goal)
        kinds = [kind.strip() for kind in vary.split(",")] if vary else list(KINDS)
        knob_set.check_kinds(kinds)
        making = Making(shapes=values.shapes(shape), batch=batch_size, seed=random_seed)
        workload = Workload(
            grpc=protocol == "grpc", model=model, streaming=streaming, making=making, input_data=input_data,
            processes=processes,
        )  # fmt: skip
        found = targets(repository, model, also, serve_flags)
        cores = len(os.sched_getaffinity(0))
        knobs = [
            knob for target in found for knob in knob_set.knobs_of(target, cores, kinds, provider, most_batch)
        ]
        if FRONT_ENDS in kinds:
            knobs.append(knob_set.front_ends(cores))
        if not knobs:
            raise BenchError(f"Nothing of model '{model}' can be varied by {', '.join(kinds)}")
        measuring = Measuring(measurement_interval, windows=3, warm_up_s=min(0.5, measurement_interval))
        job = Job(repository, found, knobs, workload, wanted, measuring, concurrency, serve_flags)
        file = path or Path(f"tune-{model}.journal")
        task = {
            "model": model,
            "goal": wanted.text,
            "knobs": {knob.name: list(knob.choices) for knob in knobs},
            "protocol": protocol,
            "batch": batch_size,
        }
        return _Search(job, Study(file, task, knobs, wanted, random_seed), trials, verbose=verbose).run(
            Files(html_file, json_file, output), file
        )
    except BenchError as error:
        raise click.ClickException(str(error)) from None


@dataclass(frozen=True, slots=True)
class Files:
    """What is written at the end.

    Attributes:
        html: a page.
        json: what was found, for programs.
        configurations: a directory with a `MODEL.pbtxt` for each model.
    """

    html: Path | None
    json: Path | None
    configurations: Path | None


class _Search:
    """One run of the command."""

    def __init__(self, job: Job, study: Study, trials: int, *, verbose: bool) -> None:
        self._job = job
        self._study = study
        self._trials = trials
        self._line = ProgressLine(verbose=verbose)
        self._began = time.monotonic()

    def run(self, files: Files, file: Path) -> int:
        """Search, and show what was found; 130 if it was interrupted."""
        job, study = self._job, self._study
        earlier = len(study.outcomes)
        if earlier:
            click.echo(f"{file} has {earlier} settings that were measured before.", err=True)
        try:
            if not study.search(self._trials, self._measure, self._show):
                click.echo("The search proposes nothing new; it ends here.", err=True)
            best, effects = refine(study, job.knobs, job.goal, self._evaluate)
        except KeyboardInterrupt:
            self._line.clear()
            click.echo(f"Interrupted. The same command goes on from {file}.", err=True)
            return 130
        self._line.clear()
        told = verdict(job.goal, study.outcomes[0], best)
        lines = _lines(job.targets, job.knobs, best.setting)
        click.echo(table(HEADINGS, rows(job.goal, job.knobs, study.outcomes, _SHOWN)))
        click.echo("\n".join([*told, *(effect.told for effect in effects), "", lines]))
        self._write(best, effects, told, lines, files)
        return 0

    def _measure(self, setting: Setting) -> list[Point]:
        number = len(self._study.outcomes) + 1
        of = (
            f" of {self._trials}" if number <= self._trials else ""
        )  # further ones try what the best owes to what
        self._line.before = f"setting {number}{of}: "
        self._line.wait_for("starting a server")
        return measure_setting(self._job, setting, self._line.show)

    def _evaluate(self, setting: Setting) -> Outcome:
        return self._study.evaluate(setting, self._measure, self._show)

    def _show(self, number: int, outcome: Outcome) -> None:
        self._line.clear()
        goal = self._job.goal
        if outcome.points:
            point = goal.best(outcome.points)
            told = f"{goal.told(point)}, p99 {point.p99:.3g} ms" + (
                " (over a limit)" if goal.excess(point) else ""
            )
        else:
            told = f"failed: {outcome.reason}"
        name = difference(self._job.knobs, outcome.setting)
        click.echo(f"{time.monotonic() - self._began:6.0f} s  {number:3}  {told}  {name}", err=True)

    def _write(self, best: Outcome, effects: list[Effect], told: list[str], lines: str, files: Files) -> None:
        job = self._job
        outcomes = self._study.outcomes
        if files.html is not None:
            title = f"{job.workload.model}: {job.goal.text}"
            write_text(files.html, html(title, job.goal, job.knobs, outcomes, best, effects, told, lines))
        if files.json is not None:
            write_text(files.json, as_json(job.goal, outcomes, best, effects, lines))
        if files.configurations is not None:
            files.configurations.mkdir(parents=True, exist_ok=True)
            for target in job.targets:
                path = files.configurations / f"{target.name}.pbtxt"
                write_text(path, target.text(job.knobs, best.setting))


def _lines(found: Sequence[Target], knobs: Sequence[Knob], setting: Setting) -> str:
    """What is to be written into which file."""
    parts = []
    for target in found:
        if lines := target.lines(knobs, setting):
            parts.append(f"# {target.name}/config.pbtxt\n{lines}")
    if setting.get(FRONT_ENDS, 1) != 1:
        parts.append(f"# halimede serve --front-ends={setting[FRONT_ENDS]}\n")
    return "\n".join(parts) or "# Nothing is to be changed.\n"
