"""The Python API reference, from the signatures and docstrings of the public names."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

import deltasql

from .docstrings import entries, markdown

_INTRODUCTION = """# Python API

This page is generated from the docstrings by `make docs`. All names on it can be imported from `deltasql`, except
`Merge`, which `Table.merge` and `Transaction.merge` return. [Errors](errors.md) says what to do about each error.

These names appear in signatures:

- `pa` is `pyarrow`, and `DataFrame`, `Column` and `SparkSession` are PySpark's.
- `Moment` is a `datetime` or a text such as `"2026-01-31T12:00:00Z"`.
- `Expression` is a text in Spark SQL or a `Column`.
- `TableHandle` is a `Table`.
"""
_SECTIONS: dict[str, tuple[str, ...]] = {
    "Functions": ("connect", "begin", "register", "stream_to", "versions_as_of"),
    "Lakes, tables and transactions": ("Lake", "Table", "Merge", "Transaction", "Savepoint", "LakeSnapshot", "Mirror"),
    "Results and records": (
        "CommitResult", "TableInfo", "HistoryEntry", "TransactionInfo", "Snapshot", "LakeVersions", "MirrorStatus",
        "MirrorReport",
    ),
    "Actions": (
        "Add", "Remove", "Cdc", "Metadata", "Protocol", "Txn", "DomainMetadata", "CommitInfo", "DeletionVector",
        "Format",
    ),
    "Log access": ("MultiTableTransaction", "SqlTxnLogWriter", "SqlTxnLogReader", "Reads", "Store"),
}  # fmt: skip
_SHOWN = {
    "Store": ("committed",),
    "Mirror": ("status", "run", "watch", "repair", "validate"),
    "MultiTableTransaction": ("stage", "commit", "rollback"),
    "MirrorStatus": (),
    "SqlTxnLogReader": ("version", "snapshot", "files", "history", "version_at"),
}
"""The members to show of classes that deltasql's other packages call as well."""
_HIDDEN = {
    "Lake": {
        "changer", "compactor", "config_values", "frame_of", "local_name", "retries", "session", "stage_table",
        "statement_session", "writer",
    },
    "Table": {"state"},
    "MultiTableTransaction": {"in_doubt"},
    "Store": {"publish"},
    "Metadata": {"table_properties"},
    "DeletionVector": {"unique_id"},
    "Transaction": {"change", "run"},
}  # fmt: skip
_CONSTRUCTED = ("MultiTableTransaction", "SqlTxnLogWriter", "SqlTxnLogReader")
"""Classes that users construct by themselves, except for records."""
_WIDTH = 100


def python_api_page() -> str:
    """Return the page with every public name."""
    _check_sections()
    lines = [_INTRODUCTION]
    for title, names in _SECTIONS.items():
        lines += [f"## {title}", "", " · ".join(f"[{name}](#{name.lower()})" for name in names), ""]
        for name in names:
            lines += _entry(name, _public(name))
    return "\n".join([*lines, "## Errors", "", *_error_tree(), *_error_entries()]).rstrip() + "\n"


def _check_sections() -> None:
    """Raise an error unless each public name is in exactly one section."""
    listed = [name for names in _SECTIONS.values() for name in names if name != "Merge"]
    expected = sorted(set(deltasql.__all__) - {error.__name__ for error in _errors()})
    if sorted(listed) != expected:
        raise ValueError(f"list these public names once in _SECTIONS: {set(expected) ^ set(listed)}")


def _public(name: str) -> Any:
    if name == "Merge":
        merge = deltasql.Table.merge
        return merge.__globals__[merge.__annotations__["return"]]
    return getattr(deltasql, name)


def _entry(name: str, value: Any) -> list[str]:
    return _class(name, value) if inspect.isclass(value) else _function(f"### {name}", f"deltasql.{name}", value)


def _function(heading: str, call: str, function: Any) -> list[str]:
    return [heading, "", "```python", _signature(call, function), "```", "", *markdown(function.__doc__)]


def _class(name: str, cls: type) -> list[str]:
    lines = [f"### {name}", ""]
    if name in _CONSTRUCTED:
        lines += ["```python", _signature(f"deltasql.{name}", cls), "```", ""]
    lines += [*markdown(cls.__doc__, without="Attributes"), *(_field_table(cls) or _attribute_list(cls))]
    for member, value in _members(name, cls).items():
        if isinstance(value, property):
            lines += [f"#### {name}.{member}", "", f"Property: {_code(_returns(value.fget))}", ""]
            lines += markdown(value.__doc__)
        else:
            lines += _function(f"#### {name}.{member}", member, value)
    return lines


def _field_table(cls: type) -> list[str]:
    described = entries(cls.__doc__, "Attributes")
    rows = [(field, kind, default, doc or described.get(field, "")) for field, kind, default, doc in _fields(cls)]
    if not rows:
        return []
    lines = [f"| `{field}` | {_code(kind)} | {_code(default)} | {doc} |" for field, kind, default, doc in rows]
    return ["| field | type | default | meaning |", "|---|---|---|---|", *lines, ""]


def _attribute_list(cls: type) -> list[str]:
    described = {name: doc for name, doc in _attributes(cls).items() if doc} | entries(cls.__doc__, "Attributes")
    lines = [f"- `{name}`: {doc}" for name, doc in described.items() if name not in _HIDDEN.get(cls.__name__, ())]
    return ["Attributes:", "", *lines, ""] if lines else []


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`" if text else ""


def _members(name: str, cls: type) -> dict[str, Any]:
    """Return the public methods and properties of a class and its bases in deltasql."""
    is_record = bool(list(_fields(cls)))
    owners = [cls] if is_record else [base for base in reversed(cls.__mro__) if base.__module__.startswith("deltasql")]
    found = {
        member: value
        for owner in owners
        for member, value in vars(owner).items()
        if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
    }
    if name in _SHOWN:
        return {member: found[member] for member in _SHOWN[name]}
    return {member: value for member, value in found.items() if member not in _HIDDEN.get(name, ())}


def _signature(call: str, function: Any) -> str:
    """Return the signature without `self`: on one line if it fits, else with one parameter per line."""
    signature = inspect.signature(function)
    parts = _parameters([p for p in signature.parameters.values() if p.name != "self"])
    arrow = f" -> {returned}" if (returned := _returns(function)) else ""
    line = f"{call}({', '.join(parts)}){arrow}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{call}(", *(f"    {part}," for part in parts), f"){arrow}"])


def _parameters(parameters: list[inspect.Parameter]) -> list[str]:
    parts: list[str] = []
    for index, parameter in enumerate(parameters):
        starred = any(p.kind in (p.VAR_POSITIONAL, p.KEYWORD_ONLY) for p in parameters[:index])
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
        parts.append(str(parameter.replace(annotation=parameter.empty)) if _untyped(parameter) else _typed(parameter))
    return parts


def _untyped(parameter: inspect.Parameter) -> bool:
    return parameter.annotation is parameter.empty


def _typed(parameter: inspect.Parameter) -> str:
    stars = "*" * (parameter.kind is parameter.VAR_POSITIONAL) + "**" * (parameter.kind is parameter.VAR_KEYWORD)
    default = "" if parameter.default is parameter.empty else f" = {_default(parameter.default)}"
    return f"{stars}{parameter.name}: {_annotation(parameter.annotation)}{default}"


def _default(value: Any) -> str:
    """Return a default as source text; a function has none that says anything."""
    return "..." if callable(value) else repr(value)


def _returns(function: Any) -> str:
    annotation = inspect.signature(function).return_annotation
    return "" if annotation in (inspect.Signature.empty, "None", None) else _annotation(annotation)


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _body(cls: type) -> list[ast.stmt]:
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(definition, ast.ClassDef)  # noqa: S101
    return definition.body


def _fields(cls: type) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, type, default and meaning of each field of a dataclass or struct."""
    if not hasattr(cls, "__dataclass_fields__") and not hasattr(cls, "__struct_fields__"):
        return
    body = _body(cls)
    for node, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            kind = ast.unparse(node.annotation)
            if not kind.startswith("ClassVar") and not node.target.id.startswith("_"):
                default = ast.unparse(node.value) if node.value else ""
                yield node.target.id, kind, default, _comment(following)


def _attributes(cls: type) -> dict[str, str]:
    """Return the public attributes that `__init__` sets, with the text below each assignment."""
    attributes: dict[str, str] = {}
    for method in _body(cls):
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            for node, following in zip(method.body, [*method.body[1:], None], strict=True):
                if name := _assigned(node):
                    attributes[name] = _comment(following)
    return attributes


def _assigned(node: ast.stmt) -> str | None:
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    is_attribute = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)
    return target.attr if is_attribute and not target.attr.startswith("_") else None  # type: ignore[union-attr]


def _comment(node: ast.stmt | None) -> str:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return " ".join(str(node.value.value).split()) if is_text else ""  # type: ignore[union-attr]


def _errors() -> list[type]:
    found = [getattr(deltasql, name) for name in deltasql.__all__]
    return [value for value in found if inspect.isclass(value) and issubclass(value, Exception)]


def _tree(cls: type, depth: int = 0) -> Iterator[tuple[type, int]]:
    yield cls, depth
    subclasses: list[type] = cls.__subclasses__()
    for subclass in subclasses:
        if subclass in _errors():
            yield from _tree(subclass, depth + 1)


def _error_tree() -> list[str]:
    tree = ["  " * depth + error.__name__ for error, depth in _tree(deltasql.DeltaSqlError)]
    return ["```text", *tree, "```", ""]


def _error_entries() -> Iterator[str]:
    for error, _ in _tree(deltasql.DeltaSqlError):
        yield from [f"### {error.__name__}", "", *markdown(error.__doc__, without="Attributes")]
        if bases := [f"`{base.__name__}`" for base in error.__bases__ if base is not Exception]:
            yield from [f"Base: {', '.join(bases)}", ""]
        attributes = _attributes(error) | _class_attributes(error) | entries(error.__doc__, "Attributes")
        lines = [f"- `{name}`: {doc}" for name, doc in attributes.items() if doc]
        yield from ["Attributes:", "", *lines, ""] if lines else []


def _class_attributes(cls: type) -> dict[str, str]:
    body = _body(cls)
    return {
        node.target.id: _comment(following)
        for node, following in zip(body, [*body[1:], None], strict=True)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
