"""Spark SQL with holes for expressions: the form in which functions, operators and casts are translated."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from sqlglot import exp

from deltasql.sql.catalog.pg_types import SqlType

Tree = Any
_LAMBDA = re.compile(r"(?:\((\w+), (\w+)\)|(\w+)) ->")
_HOLE = re.compile(r"\{(\d+|\*)\}")
_SIMPLE = (exp.Column, exp.Literal, exp.Null, exp.Boolean, exp.Placeholder, exp.Identifier)
_MOST_NODES = 4
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Typed:
    """An expression in Spark SQL, and its type in PostgreSQL."""

    tree: Tree
    type: SqlType


class Template(exp.Expression, exp.Func):
    """An expression whose Spark SQL is a text with its arguments in place of `{0}`, `{1}` … and `{*}` for all."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": False}

    @property
    def text_with_holes(self) -> str:
        """The text."""
        return str(self.args["this"])


class SparkText(exp.Expression, exp.Func):
    """An expression that is Spark SQL already, such as a stored default."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


def filled(text: str, arguments: Sequence[Tree]) -> Tree:
    """Return a template with its arguments.

    An argument that the text has more than once is computed once: Spark SQL has no name for the value of an
    expression but the variable of a lambda.
    """
    holes = [found[1] for found in _HOLE.finditer(text)]
    repeated = [
        index for index, argument in enumerate(arguments) if holes.count(str(index)) > 1 and not _is_simple(argument)
    ]
    for index in repeated:
        name = f"__v{next(_numbers)}"
        text = text.replace(f"{{{index}}}", name)
        text = f"element_at(transform(array({{{index}}}), {name} -> {text}), 1)"
    return template(text, arguments)


def template(text: str, arguments: Sequence[Tree]) -> Tree:
    """Return a template with its arguments as they are; the variables of its lambdas get names that no column has."""
    return Template(this=_protected(text), expressions=list(arguments))


@cache
def _protected(text: str) -> str:
    names = {name for found in _LAMBDA.finditer(text) for name in found.groups() if name and not name.startswith("__")}
    for name in names:
        text = re.sub(rf"(?<![\w'.]){name}(?![\w'(])", f"__{name}", text)
    return text


def _is_simple(tree: Tree) -> bool:
    """Return whether a tree is so small that Spark may as well compute it several times."""
    nodes = list(itertools.islice(tree.walk(), _MOST_NODES + 1))
    return len(nodes) <= _MOST_NODES and all(isinstance(node, (*_SIMPLE, exp.Cast, exp.DataType)) for node in nodes)


def rendered(generator: Any, template: Template) -> str:
    """Render a template in Spark SQL."""
    arguments = [generator.sql(argument) for argument in template.expressions]

    def argument(found: re.Match[str]) -> str:
        return ", ".join(arguments) if found[1] == "*" else str(arguments[int(found[1])])

    return _HOLE.sub(argument, template.text_with_holes)
