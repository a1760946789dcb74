# SPDX-License-Identifier: MIT OR Apache-2.0
"""Of which code records are: their keys beside those of the present code (results/present.json).

A record of other keys is stale, unless its experiment gave the same records at a tenth under both
(results/tenth.jsonl).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from shingle.build import build
from shingle.build.build import Built
from shingle.paths import ROOT
from shingle.runs import tenth
from shingle.runs.experiment import Experiment
from shingle.runs.record import Record
from shingle.runs.run import content
from shingle.runs.tenth import Keys

FILE = ROOT / "results/present.json"
State = Literal["present", "equal at a tenth", "stale"]
_SHOWN = 8


def of_code(built: Built) -> Keys:
    """The keys that a record would get now; `kernel FLAVOUR` for one on a kernel with patches that are not shipped."""
    return {
        "kernel": built.kernel.key,
        "drive_model": content(built.crates.drive_object),
        "guest": content(built.crates.guest),
        **{f"kernel {flavour}": build.kernel_key(flavour, built.crates) for flavour in build.changes()},
    }


def present(path: Path = FILE) -> Keys:
    """What the file has, in the order of records."""
    read: Keys = json.loads(path.read_text())
    return read


def write(keys: Keys, path: Path = FILE) -> None:
    path.write_text(f"{json.dumps(keys, indent=1)}\n")


def state(chosen: Experiment, keys: Keys, now: Keys, known: Sequence[tenth.Seen]) -> State:
    shipped, *changed = _keys_of(now)
    if keys in (shipped, *changed):
        return "present"
    last = tenth.latest(known, chosen.name)
    return "equal at a tenth" if last is not None and keys in last.keys and shipped in last.keys else "stale"


def _keys_of(now: Keys) -> list[Keys]:
    """The keys of records on each kernel of the present code, the shipped one first."""
    rest = {name: key for name, key in now.items() if not name.startswith("kernel")}
    return [{"kernel": key, **rest} for name, key in now.items() if name.startswith("kernel")]


def worst(chosen: Experiment, records: Sequence[Record]) -> State:
    """Of all records: what is stale in part is stale."""
    now, known = present(), tenth.read()
    states = {state(chosen, tenth.keys_of(each), now, known) for each in records}
    return next(each for each in ("stale", "equal at a tenth", "present") if each in states or each == "present")


def told(chosen: Experiment, records: Sequence[Record]) -> str:
    """A paragraph for a page: each set of keys, how many records have it, and its state."""
    now, known = present(), tenth.read()
    counts = Counter(tuple(tenth.keys_of(each).items()) for each in records)
    parts = [
        f"{many} of kernel {_short(dict(keys))}: {state(chosen, dict(keys), now, known)}"
        for keys, many in counts.most_common()
    ]
    text = f"[Records](../reference/records.md#old-records-and-new-keys): {'; '.join(parts)}."
    return (
        text
        if parts and all(part.endswith(": present") for part in parts)
        else f"{text} The present code: {_short(_keys_of(now)[0])}."
    )


def _short(keys: Keys) -> str:
    names = {"drive_model": "drive"}
    return ", ".join(
        f"{'' if name == 'kernel' else names.get(name, name) + ' '}`{key[:_SHOWN]}`" for name, key in keys.items()
    )
