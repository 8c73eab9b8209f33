"""What is usual for this checkpoint?

    python -m analysis.reference [--split exhaustive]

reads every head over a whole set and writes reference.npz into the checkpoint's folder; the demo holds single
sequences against it. To be made again after training.
"""

import sys

from analysis.subject import open_subject, parser
from attnkit import cli
from attnkit.reference import make_reference, sha256


def main(argv: list[str] | None = None) -> None:
    args = parser("analysis.reference", "What is usual for this checkpoint?").parse_args(argv)
    subject = open_subject(args)
    if not subject.checkpoint.is_dir():
        raise ValueError(f"checkpoint: got {subject.checkpoint}, allowed is a folder, in which the reference is kept")
    found = make_reference(
        subject.model,
        subject.dataset,
        subject.info.task.vocab,
        sha256(subject.checkpoint),
        batch_size=subject.batch_size,
    )
    folder = args.out if "out" in args else subject.checkpoint
    folder.mkdir(parents=True, exist_ok=True)
    print(f"reference: {found.save(folder)}, {int(found.count):,} sequences")


if __name__ == "__main__":
    sys.exit(cli.run(main))
