"""What does each head of a transformers model do, over texts?

    python -m analysis.text_stats --hf MODEL --text FILE --out DIR

runs a model, from a folder or the hub, over the texts of a file and writes the tables that `analysis.head_stats`
writes of a checkpoint, but for those of mean maps.
"""

import argparse
import sys
import time
from pathlib import Path

from analysis.subject import sha256, shown, write_json
from attnkit import cli, plots
from attnkit.checkpoint import versions
from attnkit.files import staged
from attnkit.tables import dictionary_frame, histogram_frame, long_frame, wide_frame
from attnkit.text import Texts


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    try:
        import transformers

        from attnkit import hfstats
    except ImportError:
        raise ValueError("hf: this needs transformers 5 or later: pip install 'attnkit[hf]'") from None
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    device = cli.pick_device(args.device)
    model, tokenizer = hfstats.load(args.hf)
    model.to(device)  # type: ignore[arg-type]  # transformers' stub has another overload in sight
    allowed = hfstats.longest_text(model, tokenizer)
    longest = allowed if args.max_tokens is None else args.max_tokens
    if longest > allowed:
        raise cli.UsageError(f"--max-tokens: got {longest}, allowed for {args.hf} is at most {allowed}")
    texts = Texts(args.text, tokenizer, longest)

    started = time.perf_counter()
    batches = iter(cli.progress(texts.batches(args.batch_size), unit="batch"))
    stats, measures = hfstats.collect(model, batches, hfstats.vocabulary(tokenizer), longest=longest)
    seconds = time.perf_counter() - started

    long = long_frame(stats, measures, [], population=False)
    words = dictionary_frame(measures)
    tables = {
        "head_stats": wide_frame(long),
        "head_stats_long": long,
        "histograms": histogram_frame(stats, measures, []),
        "dictionary": words[words["statistic"].isin(long["statistic"])],
    }
    with staged(args.out, last="run.json") as folder:
        for name, table in tables.items():
            table.to_csv(folder / f"{name}.csv", index=False, lineterminator="\n", encoding="utf-8")
        long.to_parquet(folder / "head_stats_long.parquet", index=False)
        plots.save(plots.statistic_grid(long), folder / "statistics")
        record = {
            "hf": args.hf,
            "architecture": type(model).__name__,
            "text": shown(args.text),
            "text_sha256": sha256(args.text),
            "device": str(device),
            "batch_size": args.batch_size,
            "max_tokens": longest,
            "texts": texts.count,
            "truncated": texts.truncated,
            "seconds": seconds,
            "versions": versions() | {"transformers": transformers.__version__},
        }
        write_json(folder / "run.json", record)

    print(f"{texts.count:,} texts in {seconds:.1f} s, {texts.count / seconds:,.0f} a second")
    if texts.truncated:
        print(f"warning: {texts.truncated:,} of them were cut to {longest} tokens")
    print(f"tables: {args.out}")


def parse(argv: list[str] | None) -> argparse.Namespace:
    p = cli.parser("analysis.text_stats", "What does each head of a transformers model do, over texts?")
    p.add_argument("--hf", required=True, metavar="MODEL", help="a folder, or a name on the hub")
    p.add_argument(
        "--text", type=Path, required=True, metavar="FILE", help=".txt, a text a line; or .csv, .jsonl, .parquet: text"
    )
    p.add_argument("--out", type=Path, required=True, metavar="DIR", help="output folder")
    p.add_argument(
        "--max-tokens",
        type=cli.positive_int,
        metavar="N",
        help="cut texts to so many tokens (default: what the model takes, at most 512)",
    )
    p.add_argument("--batch-size", type=cli.positive_int, default=32, metavar="N", help="texts per pass")
    cli.add_device(p)
    return p.parse_args(argv)


if __name__ == "__main__":
    sys.exit(cli.run(main))
