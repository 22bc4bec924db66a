"""Writes the dataclasses of `nodeglass.models` from the description of the HTTP API, `docs/openapi.json`.

Run it after a change of the API; a test fails where the dataclasses are out of date.
"""

from __future__ import annotations

import json
import keyword
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
OPENAPI = HERE.parents[2] / "docs" / "openapi.json"
MODELS = HERE.parent / "src" / "nodeglass" / "models"

# Each module with its responsibility and the schemas that it contains with all that they refer to.
# A schema is written to the first module that needs it.
MODULES = {
    "readings": (
        "Readings of GPUs, hosts, processes and jobs: numbers in the unit that the name ends with, or `None`.",
        ["GpuReadings", "HostReadings", "ProcessReadings", "JobReadings"],
    ),
    "state": ("Jobs, nodes, GPUs, processes and findings of one moment.", ["Snapshot", "Silence"]),
    "reports": (
        "What is kept of jobs: history, reports, usage and notes.",
        ["History", "Report", "Usage", "NodeFault", "SavedNote"],
    ),
    "status": ("How the relay itself is doing.", ["StatusReport"]),
}
# The type of the contents where the description has one of these names.
SCALARS = {"integer": "int", "number": "float", "string": "str", "boolean": "bool"}
WIDTH = 110


def schema_name(ref: str) -> str:
    return ref.rsplit("/", 1)[-1]


class Generator:
    """Converts schemas to dataclasses."""

    def __init__(self, schemas: dict[str, Any]) -> None:
        self.schemas = schemas
        self.module_of: dict[str, str] = {}

    def is_class(self, name: str) -> bool:
        schema = self.schemas[name]
        return schema.get("type") == "object" and "properties" in schema

    def type_of(self, schema: dict[str, Any], needs: list[str]) -> tuple[str, bool]:
        """The annotation of a schema without `Optional`, and whether it may be null."""
        if "$ref" in schema:
            name = schema_name(schema["$ref"])
            if self.is_class(name):
                needs.append(name)
                return name, False
            if name == "Timestamp":
                return "datetime", False
            return self.type_of(self.schemas[name], needs)
        for key in ("oneOf", "anyOf"):
            if key in schema:
                variants = [one for one in schema[key] if one.get("type") != "null"]
                is_null = len(variants) < len(schema[key])
                if len(variants) == 1:
                    return self.type_of(variants[0], needs)[0], is_null
                if all(one.get("type") == "string" for one in variants):
                    return "str", is_null
                return "Any", is_null
        kind = schema.get("type")
        is_null = isinstance(kind, list) and "null" in kind
        if isinstance(kind, list):
            kind = next(one for one in kind if one != "null")
        if kind == "array":
            item, item_is_null = self.type_of(schema["items"], needs)
            return f"List[{optional(item, item_is_null)}]", is_null
        if kind == "object":
            values = schema.get("additionalProperties")
            value = self.type_of(values, needs)[0] if isinstance(values, dict) else "Any"
            return f"Dict[str, {value}]", is_null
        return SCALARS.get(str(kind), "Any"), is_null

    def field(self, name: str, schema: dict[str, Any], needs: list[str]) -> list[str]:
        kind, is_null = self.type_of(schema, needs)
        annotation = optional(kind, is_null) if kind != "Any" else kind
        if is_null or kind == "Any":
            # An older relay may lack it: `None`, never 0.
            default = " = None"
        elif kind.startswith("List"):
            default = " = field(default_factory=list)"
        elif kind.startswith("Dict"):
            default = " = field(default_factory=dict)"
        else:
            default = ""
        identifier = name + "_" if keyword.iskeyword(name) else name
        lines = [f"    {identifier}: {annotation}{default}"]
        return lines + docstring(self.description(schema), "    ")

    def description(self, schema: dict[str, Any]) -> str:
        if "description" in schema:
            return str(schema["description"])
        for key in ("oneOf", "anyOf"):
            for one in schema.get(key, []):
                if "description" in one:
                    return str(one["description"])
        if "$ref" in schema:
            return str(self.schemas[schema_name(schema["$ref"])].get("description", ""))
        return ""

    def dataclass(self, name: str, needs: list[str]) -> list[str]:
        schema = self.schemas[name]
        lines = ["@dataclass(frozen=True)", f"class {name}:"]
        lines += docstring(schema.get("description", name), "    ")
        fields = [self.field(field, inner, needs) for field, inner in schema["properties"].items()]
        # Fields without a default come first, as dataclasses require it.
        for field in sorted(fields, key=lambda field: " = " in field[0]):
            lines += ["", *field]
        return lines

    def classes(self, name: str, module: str, written: dict[str, list[str]]) -> None:
        """Adds a class after those that it refers to."""
        if name in self.module_of:
            return
        self.module_of[name] = module
        needs: list[str] = []
        lines = self.dataclass(name, needs)
        for need in needs:
            self.classes(need, module, written)
        written[name] = lines

    def module(self, module: str) -> str:
        sentence, roots = MODULES[module]
        written: dict[str, list[str]] = {}
        for root in roots:
            self.classes(root, module, written)
        body = "\n\n\n".join("\n".join(lines) for lines in written.values())
        return header(sentence, body, self.imports(module, body)) + body + "\n"

    def imports(self, module: str, body: str) -> list[str]:
        lines = []
        for other in MODULES:
            if other == module:
                break
            names = [one for one, home in self.module_of.items() if home == other and mentions(body, one)]
            if names:
                lines.append(f"from .{other} import {', '.join(sorted(names))}")
        return lines


def mentions(body: str, name: str) -> bool:
    """Whether a field has the type."""
    return re.search(rf"^    \w+: [\w\[]*\b{name}\b", body, re.MULTILINE) is not None


def optional(kind: str, is_null: bool) -> str:
    return f"Optional[{kind}]" if is_null else kind


def docstring(text: str, indent: str) -> list[str]:
    text = " ".join(text.replace("[`", "`").replace("`]", "`").replace("\\", "\\\\").split())
    if not text:
        return []
    lines = textwrap.wrap(text, WIDTH - len(indent) - 6)
    if len(lines) == 1:
        return [f'{indent}"""{lines[0]}"""']
    return [f'{indent}"""{lines[0]}', *(f"{indent}{line}" for line in lines[1:]), f'{indent}"""']


def header(sentence: str, body: str, local: list[str]) -> str:
    used = [name for name in ("Any", "Dict", "List", "Optional") if f"{name}" in body]
    lines = [f'"""{sentence}', "", "Written by `tools/generate_models.py`; do not edit.", '"""', ""]
    needs_field = "field(default" in body
    lines.append(f"from dataclasses import dataclass{', field' if needs_field else ''}")
    if "datetime" in body:
        lines.append("from datetime import datetime")
    lines.append(f"from typing import {', '.join(used)}")
    if local:
        lines += ["", *local]
    return "\n".join(lines) + "\n\n\n"


def generate() -> dict[str, str]:
    """The text of each module."""
    generator = Generator(json.loads(OPENAPI.read_text())["components"]["schemas"])
    files = {f"{module}.py": generator.module(module) for module in MODULES}
    names = sorted(generator.module_of)
    lines = ['"""What the relay sends, as dataclasses.', ""]
    lines += ["Written by `tools/generate_models.py`; do not edit.", '"""', ""]
    for module in MODULES:
        own = [name for name in names if generator.module_of[name] == module]
        lines += [f"from .{module} import (", *(f"    {name}," for name in own), ")"]
    lines += ["", "__all__ = [", *(f'    "{name}",' for name in names), "]", ""]
    files["__init__.py"] = "\n".join(lines)
    return files


def main() -> int:
    for name, text in generate().items():
        (MODELS / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
