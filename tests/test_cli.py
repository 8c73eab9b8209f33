"""What every command does alike: devices, numbers, exit codes, signals, plain terminals, closed pipes."""

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass, fields

import pytest
import torch

from attnkit import cli
from attnkit.data import DataConfig
from attnkit.train import TrainConfig, parse


@pytest.fixture
def device_free_machine(monkeypatch):
    """A machine with a CPU only, whose torch could have more."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_built", lambda: True)


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Some GPU")


@pytest.mark.usefixtures("device_free_machine")
def test_auto_takes_the_cpu_where_nothing_else_is_and_says_so(capsys):
    assert cli.pick_device("auto") == torch.device("cpu")

    printed = capsys.readouterr()
    assert printed.err == "using cpu\n"
    assert printed.out == ""


@pytest.mark.usefixtures("two_gpus")
def test_auto_takes_cuda_first_and_says_which(capsys):
    assert cli.pick_device("auto") == torch.device("cuda")
    assert capsys.readouterr().err == "using cuda (Some GPU)\n"


@pytest.mark.usefixtures("device_free_machine")
def test_auto_takes_mps_before_the_cpu(monkeypatch, capsys):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)

    assert cli.pick_device("auto") == torch.device("mps")
    assert capsys.readouterr().err == "using mps\n"


@pytest.mark.usefixtures("device_free_machine")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("cuda", "no CUDA device was found"),
        ("cuda:7", "no CUDA device was found"),
        ("mps", "MPS needs macOS 12.3 and an Apple GPU"),
        ("gpu0", "no device of that name"),
        ("", "no device of that name"),
    ],
)
def test_a_device_that_is_not_there_is_refused_with_the_reason_and_the_choices(name, reason):
    with pytest.raises(cli.UsageError) as refused:
        cli.pick_device(name)

    assert str(refused.value) == f"device: got {name!r}: {reason}; usable are auto, cpu"


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("name", ["cuda:2", "cuda:x"])
def test_the_gpus_that_are_there_are_listed(name):
    assert cli.pick_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(cli.UsageError, match=rf"{name}': there is no such one; usable are auto, cuda, cuda:0, cuda:1"):
        cli.pick_device(name)


@pytest.mark.usefixtures("device_free_machine")
def test_a_driver_that_torch_warns_about_is_the_reason_also_for_auto(monkeypatch, capsys):
    def too_old():
        import warnings

        warnings.warn("The NVIDIA driver on your system is too old", stacklevel=1)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", too_old)

    with pytest.raises(cli.UsageError, match="driver on your system is too old"):
        cli.pick_device("cuda")
    assert cli.pick_device("auto") == torch.device("cpu")
    assert capsys.readouterr().err == "using cpu (The NVIDIA driver on your system is too old)\n"


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "", "ten", "False", "1e3", "inf"])
def test_a_count_is_a_whole_number_of_at_least_1(text):
    assert cli.positive_int("12") == 12
    with pytest.raises(argparse.ArgumentTypeError) as refused:
        cli.positive_int(text)
    assert str(refused.value) == f"got {text!r}, allowed is a whole number of at least 1"


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1e999", "", "x"])
def test_a_rate_is_a_finite_number_above_0(text):
    assert cli.positive_float("1e-3") == 0.001
    with pytest.raises(argparse.ArgumentTypeError, match="allowed is a finite number above 0"):
        cli.positive_float(text)


@pytest.mark.parametrize(("text", "fine"), [("0", True), (str(2**63 - 1), True), (str(2**63), False), ("-1", False)])
def test_a_seed_is_one_that_torch_takes(text, fine):
    if fine:
        torch.Generator().manual_seed(cli.seed(text))
    else:
        with pytest.raises(argparse.ArgumentTypeError):
            cli.seed(text)


@dataclass(frozen=True)
class Example:
    count: int = 3  # how many, in 100 %
    rate: float = 0.5
    first_seed: int = 0  # where it starts

    def __post_init__(self):
        if self.count == 13:
            raise ValueError("count: 13 is not allowed")


def test_flags_are_the_fields_of_their_dataclass_and_their_comments_the_manual():
    parser = cli.parser("example", "An example.")
    cli.add_flags(parser, Example)

    assert cli.from_flags(parser.parse_args([]), Example) == Example()
    args = ["--count", "7", "--rate", "2", "--first-seed", "0"]
    assert cli.from_flags(parser.parse_args(args), Example) == Example(7, 2.0, 0)
    manual = " ".join(parser.format_help().split())
    assert "--count N how many, in 100 % (default: 3)" in manual
    assert "--rate X rate (default: 0.5)" in manual
    assert "--first-seed N where it starts (default: 0)" in manual


def test_values_that_do_not_go_together_are_wrong_arguments():
    args = argparse.Namespace(count=13)

    with pytest.raises(cli.UsageError, match=r"^count: 13 is not allowed$"):
        cli.from_flags(args, Example)


def test_training_without_flags_is_the_articles():
    args = parse([])

    assert cli.from_flags(args, TrainConfig) == TrainConfig(epochs=12, lr=1e-3, batch_size=64, seed=0)
    assert cli.from_flags(args, DataConfig) == DataConfig(16, 2000, 500, 1, 2)
    assert (args.d_model, args.n_heads, args.d_ff, args.n_layers) == (32, 4, 64, 2)
    for name in {field.name for cls in (TrainConfig, DataConfig) for field in fields(cls)}:
        assert hasattr(args, name)


def raises(error):
    def main():
        raise error

    return main


@pytest.mark.parametrize(
    ("main", "code", "line"),
    [
        (lambda: None, 0, ""),
        (raises(ValueError("x: got 1,\nallowed is 2")), 1, "error: x: got 1, allowed is 2\n"),
        (raises(FileNotFoundError("no checkpoint at /x")), 1, "error: no checkpoint at /x\n"),
        (raises(PermissionError(13, "Permission denied", "/x")), 1, "error: /x: Permission denied\n"),
        (raises(cli.UsageError("x: got 1")), 2, "error: x: got 1\n"),
        (raises(MemoryError()), 1, "error: out of memory\n"),
        (raises(RuntimeError("Alloc: can't allocate memory: you asked for 9")), 1, "error: out of memory\n"),
        (raises(KeyboardInterrupt()), 130, "interrupted\n"),
        (raises(cli.Interrupted(15)), 143, "interrupted\n"),
        (raises(cli.Interrupted(2, "interrupted; all is kept in /x")), 130, "interrupted; all is kept in /x\n"),
    ],
)
def test_every_end_has_its_exit_code_and_at_most_one_line(capsys, main, code, line):
    assert cli.run(main) == code

    printed = capsys.readouterr()
    assert printed.err == line
    assert printed.out == ""


def test_a_fault_of_ours_keeps_its_traceback():
    with pytest.raises(RuntimeError, match="shapes do not match"):
        cli.run(raises(RuntimeError("shapes do not match")))


def test_the_log_has_no_progress_bar(capsys):
    assert list(cli.progress(range(3), desc="reading")) == [0, 1, 2]

    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "")


BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def start(code, **options):
    """Start a command of a few lines in a process of its own, whose stdout is buffered as it usually is."""
    script = f"import sys\nfrom attnkit import cli\n{code}\nsys.exit(cli.run(main))"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": BUFFERED}
    return subprocess.Popen([sys.executable, "-c", script], **(pipes | options))


def finish(process):
    """Wait for its end; returns exit code, stdout, stderr."""
    with process:
        printed, errors = process.communicate(timeout=60)
    return process.returncode, printed, errors


def test_a_terminal_without_unicode_gets_ascii_and_no_error():
    """2×3 — 5±1 … ü 中"""
    code = r"def main(): print('2\u00d73 \u2014 5\u00b11 \u2026 \u00fc \u4e2d')"
    process = start(code, env=BUFFERED | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})

    assert finish(process) == (0, rb"2x3 - 5+-1 ... \xfc \u4e2d" + b"\n", b"")


@pytest.mark.parametrize("buffering", [{}, {"PYTHONUNBUFFERED": "1"}])
def test_a_reader_that_leaves_early_gets_no_traceback(buffering):
    process = start("def main():\n  for i in range(100_000): print(i)", env=BUFFERED | buffering)
    with process:
        assert process.stdout.readline() == b"0\n"
        process.stdout.close()
        assert process.stderr.read() == b""

    assert process.returncode == 1


def test_results_that_could_not_be_written_are_a_failure():
    with open("/dev/full", "wb") as full:
        code, _, errors = finish(start("def main(): print('result')", stdout=full))

    assert code == 1
    assert errors == b"error: [Errno 28] No space left on device\n"


def test_a_second_signal_ends_a_cleanup_that_hangs():
    """The first one reaches the command, which then takes for ever to tidy up."""
    code = """
import os, signal, time
def main():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    finally:
        print("tidying up", flush=True)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
"""
    assert finish(start(code)) == (130, b"tidying up\n", b"")
