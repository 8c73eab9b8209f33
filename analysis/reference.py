"""What is usual for this checkpoint?

    python -m analysis.reference [--split exhaustive]

reads every head over a whole set, now and at each snapshot of its training, and writes reference.npz into the
checkpoint's folder: the demo holds single sequences against it, and draws what it tells. To be made again after
training.
"""

import sys

from analysis.subject import open_subject, parser
from attnkit import cli
from attnkit.reference import make_reference


def main(argv: list[str] | None = None) -> None:
    args = parser("analysis.reference", "What is usual for this checkpoint?").parse_args(argv)
    subject = open_subject(args)
    if not subject.checkpoint.is_dir():
        raise ValueError(f"checkpoint: got {subject.checkpoint}, allowed is a folder, in which the reference is kept")
    device = next(subject.model.parameters()).device
    with cli.progress(total=len(subject.info.snapshots), unit="snapshot") as bar:
        found = make_reference(
            subject.checkpoint, subject.dataset, device=device, batch_size=subject.batch_size, tick=bar.update
        )
    folder = args.out if "out" in args else subject.checkpoint
    folder.mkdir(parents=True, exist_ok=True)
    print(f"reference: {found.save(folder)}, {int(found.count):,} sequences")


if __name__ == "__main__":
    sys.exit(cli.run(main))
