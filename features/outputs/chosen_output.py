"""The option that names an output of a table, and the output that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from twofold.infra.errors import BadArgument, nearest

if TYPE_CHECKING:
    from twofold.tables.declare.output import Output
    from twofold.tables.declare.table import Table

OutputName = Annotated[str, typer.Option("--output", metavar="NAME", help="The output, where TABLE has several.")]
Declared = TypeVar("Declared", bound="Output")


def chosen_output(declared: Table, name: str, kind: type[Declared]) -> Declared:
    """Returns the output of a table with this name; without one the only output of the kind.

    Raises:
        BadArgument: the table has no such output, or several and none is named.
    """
    from twofold.tables.declare.output import Output, kinds

    outputs = {output.name_for(declared.name): output for output in declared.outputs if isinstance(output, kind)}
    if not outputs:
        one = "output" if kind is Output else f"output to_{kind.kind}"
        raise BadArgument(
            f"{declared.full_name} has no {one}.",
            hint=f"A table declares them in outputs=[...]: {', '.join(f'to_{kind}()' for kind in sorted(kinds()))}.",
        )
    if (name or len(outputs) > 1) and name not in outputs:
        shown = f"no output {name!r}" if name else f"{len(outputs)} outputs"
        known = f"Name one by --output: {', '.join(outputs)}."
        raise BadArgument(f"{declared.full_name} has {shown}.", hint=nearest(name, outputs, known))
    return outputs[name] if name else next(iter(outputs.values()))
