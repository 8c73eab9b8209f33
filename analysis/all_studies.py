"""Every study of one checkpoint, and the page that tells of them all.

    python -m analysis.all_studies [--checkpoint DIR] [--out DIR] [--device NAME]

What one pass over the data tells is measured over all sequences; what needs many passes, over the test sequences.
"""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from analysis.report import write_report
from attnkit import cli

FIRST = ("head_stats", "--split", "exhaustive", "--with-importance")  # alone: its run.json is what the page is of
AFTER = (  # two at a time, the longest first
    ("head_importance", "--split", "test"),
    ("head_similarity", "--split", "exhaustive"),
    ("counting", "--split", "exhaustive"),
    ("faithfulness", "--split", "test"),
)
OF_SNAPSHOTS = ("training_dynamics", "--split", "test")  # where the training has kept some
AT_ONCE = 2


def main(argv: list[str] | None = None) -> None:
    p = cli.parser("analysis.all_studies", "Every study of one checkpoint, and the page that tells of them all")
    p.add_argument("--checkpoint", type=Path, default=cli.CHECKPOINT, help="a checkpoint folder, or a bare state dict")
    p.add_argument("--out", type=Path, help="output folder (default: reports/<checkpoint name>)")
    cli.add_device(p)
    args = p.parse_args(argv)
    out = args.out or cli.PROJECT / "reports" / args.checkpoint.resolve().stem
    common = ["--checkpoint", str(args.checkpoint), "--out", str(out), "--device", args.device]
    after = [OF_SNAPSHOTS, *AFTER] if (args.checkpoint / "snapshots").is_dir() else [*AFTER]
    started = time.perf_counter()
    run([*FIRST, *common])
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(run, ([*study, *common] for study in after)))
    page = write_report(out)  # once more, now that nobody else writes there
    print(f"{1 + len(after)} studies in {time.perf_counter() - started:.0f} s")
    print(f"report: {page}")


def run(study: list[str]) -> None:
    """Run a study in a process of its own. Raises ValueError with its last word where it fails."""
    started = time.perf_counter()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # Threads beyond the cores wait for each other: two processes of two threads on two cores take many times as long.
    threads = {"OMP_NUM_THREADS": str(max(1, cores // AT_ONCE))}
    done = subprocess.run(
        [sys.executable, "-m", f"analysis.{study[0]}", *study[1:]],
        env={**threads, **os.environ},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
        raise ValueError(f"{study[0]}: {said[-1].removeprefix('error: ')}")
    print(f"{study[0]}: {time.perf_counter() - started:.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(cli.run(main))
