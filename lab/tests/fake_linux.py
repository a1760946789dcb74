#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Stands in for the UML binary: prints a saved console and leaves the results that go with it.

`fake=NAME` on its command line picks what happens.
"""

import json
import sys
import time
from pathlib import Path

LOGS = Path(__file__).with_name("logs")


def main() -> int:
    arguments = dict(text.split("=", 1) for text in sys.argv[1:] if "=" in text)
    out = Path(arguments["shingle.out"])
    kind = arguments.get("fake", "ok")
    steps = json.loads((out / "job.json").read_text())["steps"]
    log = LOGS / f"{kind}.log"
    if log.exists():
        sys.stdout.write(log.read_text())
        sys.stdout.flush()
    if kind == "hang":
        report(out, steps[:1])
        time.sleep(600)
    if kind == "slow":
        for second in range(1, 100):
            tick = {"event": "tick", "now_ns": second * 10**9, "phase": "P", "counters": {}}
            with (out / "progress.jsonl").open("a") as file:
                file.write(json.dumps(tick) + "\n")
            time.sleep(0.05)
    if kind in ("panic", "oom"):
        report(out, steps[:1])
        return 1
    if kind == "truncated":
        report(out, steps)
        text = (out / "results.jsonl").read_text()
        (out / "results.jsonl").write_text(text + '{"event":"st')
        return 0
    if kind == "failed_step":
        report(out, steps[:1], status=5, error="mount: wrong fs type")
        end(out, {"event": "end", "status": "error", "message": "step 0 failed"})
        return 1
    if kind == "power_cut":
        report(out, steps[:1])
        return 3
    report(out, steps)
    end(out, {"event": "end", "status": "ok"})
    return 0


def report(out: Path, steps: list[dict], *, status: int = 0, error: str | None = None) -> None:
    with (out / "results.jsonl").open("a") as file:
        for index, step in enumerate(steps):
            line = {
                "event": "step", "do": step["do"], "phase": step.get("phase"), "index": index,
                "start_ns": index * 1000, "end_ns": index * 1000 + 500, "status": status,
                "before": {}, "after": {},
            }  # fmt: skip
            if error is not None:
                line["error"] = error
            file.write(json.dumps(line) + "\n")


def end(out: Path, line: dict) -> None:
    with (out / "results.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main())
