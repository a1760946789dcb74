# SPDX-License-Identifier: MIT OR Apache-2.0
"""What is wrong with a personality, with file and line, before a machine is booted.

`personality.schema.json` is what the generator itself says of its parameters (`load show personality --json`);
tests/crates/test_load.py compares them.
"""

from __future__ import annotations

import copy
import functools
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
from jsonschema.exceptions import ValidationError, best_match

from shingle.failure import Failure, unknown_name

MOST_THREADS = 1000
# Of the file, not of the generator.
_OURS = {"summary": {"type": "string"}}
# What the lab says, not the file.
_OF_THE_LAB = ("stage", "path", "seed", "latency")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"' + r"|'[^']*'")

_Place = tuple[str | int, ...]


@functools.cache
def schema() -> dict[str, Any]:
    """The schema of the generator's parameters."""
    parsed: dict[str, Any] = json.loads(Path(__file__).with_name("personality.schema.json").read_text())
    return parsed


@functools.cache
def _of_files() -> tuple[jsonschema.Draft202012Validator, dict[str, Any]]:
    """What a file may say but for its flows, and the schema of each flow operation by its name."""
    made = copy.deepcopy(schema())
    for name in _OF_THE_LAB:
        del made["properties"][name]
    made["properties"] |= _OURS
    made["required"] = ["filesets", "threads", "duration_s"]
    made["properties"]["duration_s"]["exclusiveMinimum"] = 0
    made["$defs"]["FileSet"]["properties"]["entries"]["minimum"] = 1
    made["$defs"]["FileSet"]["properties"]["prealloc_percent"]["maximum"] = 100
    made["$defs"]["Threads"]["properties"]["count"] |= {"minimum": 1, "maximum": MOST_THREADS}
    flows = {each["properties"]["do"]["const"]: each for each in made["$defs"].pop("Flow")["oneOf"]}
    made["$defs"]["Threads"]["properties"]["flow"]["items"] = {"type": "object", "required": ["do"]}
    return jsonschema.Draft202012Validator(made), flows


def read(path: Path, text: str) -> dict[str, Any]:
    """The personality that a file describes; what cannot be is a failure with the line."""
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as wrong:
        raise Failure(f"{path} is not TOML: {wrong}.", status=2) from None
    validator, flows = _of_files()
    _refuse(path, text, given, best_match(validator.iter_errors(given)))
    known = [each["name"] for each in given["filesets"]]
    for number, threads in enumerate(given["threads"]):
        for index, operation in enumerate(threads["flow"]):
            place: _Place = ("threads", number, "flow", index)
            name = operation["do"]
            if name not in flows:
                raise _at(path, text, given, (*place, "do"), unknown_name("flow operation", str(name), flows))
            error = best_match(jsonschema.Draft202012Validator(flows[name]).iter_errors(operation))
            _refuse(path, text, given, error, place)
            if operation.get("fileset", known[0]) not in known:
                raise _at(path, text, given, (*place, "fileset"), unknown_name("fileset", operation["fileset"], known))
    return given


def _refuse(
    path: Path, text: str, given: Mapping[str, Any], error: ValidationError | None, before: _Place = ()
) -> None:
    if error is None:
        return
    place = (*before, *error.absolute_path)
    instance: Any = error.instance
    said: Any = error.validator_value
    if error.validator == "additionalProperties":
        schema_of: Any = error.schema
        known = schema_of["properties"]
        wrong = next(name for name in instance if name not in known)
        raise _at(path, text, given, (*place, wrong), unknown_name("key", wrong, known))
    if error.validator == "required":
        missing = next(name for name in said if name not in instance)
        raise _at(path, text, given, (*place, *list(instance)[:1]), Failure(f"{missing!r} is missing here."))
    names = [each for each in place if isinstance(each, str)]
    key = names[-1] if names else "the file"
    raise _at(path, text, given, place, Failure(f"{key} = {error.instance}: {_expected(error)}."))


def _expected(error: ValidationError) -> str:
    limits = {"minimum": "at least", "maximum": "at most", "exclusiveMinimum": "more than"}
    if error.validator in limits:
        return f"expected {limits[str(error.validator)]} {error.validator_value:,}"
    if error.validator == "type":
        return f"expected type {error.validator_value}"
    return error.message


def _at(path: Path, text: str, given: Mapping[str, Any], place: _Place, failure: Failure) -> Failure:
    number = _line(text, given, place)
    where = f"{path}, line {number}" if number else f"{path}"
    return Failure(f"{where}: {failure} docs/reference/workloads.md has the keys.", status=2)


def _line(text: str, given: Mapping[str, Any], place: _Place) -> int | None:
    """The line of a key: tomllib tells none, but gives keys in the order of the file."""
    names = [each for each in place if isinstance(each, str)]
    if not names:
        return None
    while isinstance(place[-1], int):
        place = place[:-1]
    key = place[-1]
    same = [each for each in _places(given) if each[-1] == key]
    wanted = same.index(place)
    found = -1
    for number, line in enumerate(text.splitlines(), 1):
        bare = _STRING.sub('""', line).split("#")[0]
        found += len(re.findall(rf"(?:^|[\s{{,]){re.escape(str(key))}\s*=|\[\[\s*{re.escape(str(key))}\s*\]\]", bare))
        if found >= wanted:
            return number
    return None


def _places(value: Any, before: _Place = ()) -> Iterator[_Place]:
    """The place of each key, in order."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        if isinstance(name, str):
            yield (*before, name)
        yield from _places(each, (*before, name))
