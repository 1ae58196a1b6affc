"""A graph as GraphViz DOT text."""

from __future__ import annotations

import json
from collections.abc import Iterable

from tensorbow.graph.operation import Operation


def render_dot(operations: Iterable[Operation], title: str) -> str:
    """Boxes are ops, ellipses those without inputs (variables, constants, placeholders).

    Solid edges carry tensors and are labelled with their specs; dashed ones are control dependencies.
    """
    lines = [f"digraph {_quoted(title)} {{", "  rankdir=BT;", '  node [shape=box, fontname="sans-serif"];']
    for op in operations:
        label = _quoted(f"{op.name}\n{op.type}")
        shape = ", shape=ellipse" if not op.inputs else ""
        lines.append(f"  n{op.id} [label={label}{shape}];")
    for op in operations:
        for tensor in op.inputs:
            lines.append(f"  n{tensor.op.id} -> n{op.id} [label={_quoted(str(tensor.spec))}];")
        lines.extend(f"  n{control.id} -> n{op.id} [style=dashed];" for control in op.control_inputs)
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
