"""Let atheris look for bytes that break the reader of frames: `make fuzz`, or

    python tests/fuzz/fuzz_frame.py [directory] [options of libFuzzer]

where quivermq, pyarrow and atheris are installed. New inputs gather in the directory (build/fuzz unless
one is named); it begins with the lines of corpus.txt. An input that breaks something is written to a
file and printed: add its hex as a line to corpus.txt, and it stays a test forever.
"""

import hashlib
import sys
from pathlib import Path

HERE = Path(__file__).parent
CORPUS = HERE / "corpus.txt"
INPUT_BYTES_MAX = 4096


def corpus() -> list[bytes]:
    """The inputs that are kept: one a line, in hex."""
    return [bytes.fromhex(line) for line in CORPUS.read_text().splitlines()]


def main(arguments: list[str]) -> None:
    import atheris  # type: ignore[import-untyped]  # It is installed only for fuzzing.

    # Run as a script, it has only its own directory on the path.
    sys.path.insert(0, str(HERE.parent))
    with atheris.instrument_imports(include=["quivermq", "fuzz.oracle"]):
        from fuzz.oracle import check, input_frame

    def try_one(data: bytes) -> None:
        check(input_frame(data))

    options = [each for each in arguments if each.startswith("-")]
    directories = [each for each in arguments if not each.startswith("-")] or ["build/fuzz"]
    seeds = Path(directories[0])
    seeds.mkdir(parents=True, exist_ok=True)
    for data in corpus():
        (seeds / hashlib.sha1(data).hexdigest()).write_bytes(data)
    atheris.Setup([sys.argv[0], f"-max_len={INPUT_BYTES_MAX}", *options, *directories], try_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
