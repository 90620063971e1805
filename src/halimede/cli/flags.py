"""The flags of `halimede serve` as click reads them and as documentation shows them."""

import difflib
import os
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from halimede import __version__
from halimede.cli import trace_options
from halimede.cli.options import GROUPS, SETTINGS, ServeOptions
from halimede.cli.settings import Kind, Setting
from halimede.cli.vertex import with_vertex_defaults
from halimede.core.gpus import missing_for_metrics

_GIVEN: Final = "given models"
"""Where click keeps what is given beside the flags; no flag has such a name."""

_OTHERS: Final = "Others"
_FLAG_NAME: Final = re.compile(r"(--[A-Za-z0-9_-]*).*", re.DOTALL)


class _Value(click.ParamType[Any]):
    """A kind of value, as click wants it."""

    def __init__(self, kind: Kind[Any]) -> None:
        self.name = kind.metavar
        self._parse = kind.parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            flag = param.opts[0] if param is not None else "flag"
            msg = f"{flag}: {error}"
            raise click.UsageError(msg, ctx) from None


class ServeCommand(click.Command):
    """`halimede serve`: flags may be cut short as with getopt_long, and the help is in groups.

    Attributes:
        takes_models: models may be given beside the flags.
    """

    takes_models = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, in which flags may be cut short."""
        known = [name for parameter in self.params for name in (*parameter.opts, "--help")]
        ctx.allow_extra_args = True  # refused below, with what was probably meant
        super().parse_args(ctx, [_spelled_out(argument, known) for argument in args])
        if ctx.args and (not self.takes_models or _may_be_secret(args)):
            raise click.UsageError(_stray_argument(ctx.args[0], args), ctx)
        ctx.params[_GIVEN], ctx.args = tuple(ctx.args), []
        return []

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Flags, or files where models may be given."""
        if self.takes_models and not incomplete.startswith("-"):
            return [CompletionItem(incomplete, type="file")]
        return super().shell_complete(ctx, incomplete)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the flags, group by group; each on a line of its own, with its help below."""
        groups = {each.attribute: each.group for each in SETTINGS}
        for group in (*GROUPS, _OTHERS):
            with formatter.section(group):
                for parameter in self.get_params(ctx):
                    record = parameter.get_help_record(ctx)
                    if record is not None and groups.get(str(parameter.name), _OTHERS) == group:
                        flag, text = record
                        formatter.write(_paragraph(flag, formatter, 2) + _paragraph(text, formatter, 6))


def _paragraph(text: str, formatter: click.HelpFormatter, indent: int) -> str:
    """The text in lines that break at spaces only, so that flags stay whole."""
    margin = " " * indent
    lines = textwrap.wrap(
        text,
        formatter.width,
        initial_indent=margin,
        subsequent_indent=margin,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines) + "\n"


def _may_be_secret(args: list[str]) -> str:
    """The flag whose value an argument without a flag may belong to; "" if there is none of those with secrets."""
    flags = ("--http-restricted-api", "--grpc-restricted-protocol", "--cache-config")
    return next((flag for flag in flags if any(argument.startswith(flag) for argument in args)), "")


def _stray_argument(extra: str, args: list[str]) -> str:
    """What to say of an argument that belongs to no flag; it is not repeated if it may be a part of a secret."""
    if flag := _may_be_secret(args):
        return (
            "there is an argument that belongs to no flag: write --model-repository before a model repository, and "
            f"the value of {flag} without spaces, or in quotes"
        )
    return f"'{extra}' is no flag; to serve the model repository '{extra}', write --model-repository={extra}"


def serve_command(
    run: Callable[[ServeOptions, list[str]], int],
    run_given: Callable[[Sequence[str], ServeOptions, list[str]], int] | None = None,
) -> click.Command:
    """The command `serve`.

    Args:
        run: gets the options and the remarks to log about them, for the exit status.
        run_given: gets what is given beside the flags, too; None if nothing may be.
    """

    def callback(**values: Any) -> int:
        given_models: Sequence[str] = values.pop(_GIVEN)
        flags = {name: value for name, value in values.items() if value not in (None, ())}
        given = with_vertex_defaults(flags, os.environ)
        remarks = [*check_flags(given), *deprecation_remarks(given), *gpu_remarks(given)]
        names = {each.attribute for each in SETTINGS if not each.reason}
        options = ServeOptions(**{name: value for name, value in given.items() if name in names})
        return (
            run_given(given_models, options, remarks) if run_given and given_models else run(options, remarks)
        )

    version = click.version_option(__version__, prog_name="halimede")
    serve = ServeCommand(
        "serve",
        callback=callback,
        params=[_option(each) for each in SETTINGS],
        short_help="Serve model repositories over HTTP and gRPC.",
        options_metavar="[MODEL...] [FLAGS]" if run_given else "--model-repository=DIRECTORY [FLAGS]",
        help="Serve models over HTTP and gRPC (KServe v2): those of a repository, or those given: files, "
        "directories of models, and functions as module:function, each with NAME= in front for another "
        "name.\n\n"
        "The flags are those of tritonserver. Write --flag=VALUE or --flag VALUE. A BOOL is true, on, 1, false, off "
        "or 0; a BOOL flag without a value means true. A flag may be cut short as long as it stays unique.",
    )
    serve.takes_models = run_given is not None
    return version(serve)


def check_flags(given: Mapping[str, Any]) -> list[str]:
    """A remark for each flag given that has no effect here.

    Raises:
        click.UsageError: a flag has no value where it needs one.
    """
    if given.get("model_config_name") == "":
        msg = "empty argument for --model-config-name"
        raise click.UsageError(msg)
    remarks = []
    for each in SETTINGS:
        if each.attribute not in given:
            continue
        if each.reason:
            remarks.append(f"--{each.name} has no effect here: {each.reason}")
    return remarks


def deprecation_remarks(given: Mapping[str, Any]) -> list[str]:
    """What tritonserver says of the deprecated flags given."""
    remarks = trace_options.deprecation_remarks(given)
    if size := given.get("response_cache_byte_size"):
        remarks.append(
            "Warning: '--response-cache-byte-size' has been deprecated! This will default to the 'local' cache "
            "implementation with the provided byte size for its config. Please use '--cache-config' instead. The "
            f"equivalent --cache-config CLI args would be: '--cache-config=local,size={size}'"
        )
    if "strict_model_config" not in given:
        return remarks
    instead = "Please use '--disable-auto-complete-config' instead."
    remarks.append(f"Warning: '--strict-model-config' has been deprecated! {instead}")
    if given.get("disable_auto_complete_config") and not given["strict_model_config"]:
        remarks.append(
            "Warning: Overriding deprecated '--strict-model-config' from False to True in favor of "
            "'--disable-auto-complete-config'!"
        )
    return remarks


def gpu_remarks(given: Mapping[str, Any]) -> list[str]:
    """What is missing for metrics of GPUs, if those were asked for by name."""
    if not given.get("allow_gpu_metrics"):
        return []
    missing = missing_for_metrics()
    return [f"--allow-gpu-metrics has no effect: {missing}"] if missing else []


def flags_document() -> str:
    """`docs/flags.md`."""
    lines = [
        "# Flags of `halimede serve`",
        "",
        "<!-- Made by scripts/generate_docs.py from src/halimede/cli/flag_groups/; change it there. -->",
        "",
        "Names, spellings and defaults are those of tritonserver. Write `--flag=VALUE` or `--flag VALUE`; a",
        "flag may be cut short as long as it stays unique. A BOOL is `true`, `on`, `1`, `false`, `off` or `0`,",
        "and a BOOL flag alone means `true`. Flags marked with × may be given several times. Flags of",
        "tritonserver that do nothing here are accepted too; the log says so, and why.",
    ]
    for group in GROUPS:
        lines += ["", f"## {group}", "", "| Flag | Default | Meaning |", "|---|---|---|"]
        lines += [_document_row(each) for each in SETTINGS if each.group == group]
    return "\n".join(lines) + "\n"


def _document_row(each: Setting) -> str:
    names = " or ".join(f"`--{name}`" for name in (each.name, *each.aliases))
    mark = " ×" if each.repeatable else ""
    default = each.default_text
    shown = default if each.shown_default or not default else f"`{default}`"
    metavar, description = (text.replace("|", "\\|") for text in (each.kind.metavar, each.description))
    return f"| {names} `{metavar}`{mark} | {shown} | {description} |"


def _option(each: Setting) -> click.Option:
    notes = [f"default: {each.default_text}"] if each.default_text else []
    if each.repeatable:
        notes.append("may be repeated")
    bare: dict[str, Any] = {} if each.kind.bare is None else {"is_flag": False, "flag_value": each.kind.bare}
    return click.Option(
        [f"--{each.name}", *(f"--{alias}" for alias in each.aliases), each.attribute],
        type=_Value(each.kind),
        metavar=each.kind.metavar,
        multiple=each.repeatable,
        default=None,
        help=f"{each.description} [{'; '.join(notes)}]" if notes else each.description,
        **bare,
    )


def _spelled_out(argument: str, known: list[str]) -> str:
    """The argument with its flag in full."""
    name, equals, value = argument.partition("=")
    if not name.startswith("--") or name in known:
        return argument
    longer = sorted(each for each in known if each.startswith(name))
    if len(longer) == 1:
        return longer[0] + equals + value
    if longer:
        msg = f"{name} is short for several flags: {', '.join(longer)}"
        raise click.UsageError(msg)
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    shown = _FLAG_NAME.sub(r"\1", name)  # what follows the name may hold a secret
    msg = f"unknown flag {shown}; the nearest is {nearest[0]}"
    raise click.UsageError(msg)
