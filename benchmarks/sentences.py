"""A thousand sentences that every Python brings along: those of its own language reference.

    python -m benchmarks.sentences > sentences.txt

They differ a little from one version of Python to the next.
"""

import re
from pydoc_data.topics import topics

COUNT = 1000
END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


def sentences() -> list[str]:
    """The first of five to forty words, in the order of the topics' names, each once."""
    text = "\n\n".join(topics[name] for name in sorted(topics))
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    whole = [p for p in paragraphs if p[:1].isupper() and p.endswith((".", "!", "?"))]  # neither code nor grammar
    found = [sentence for paragraph in whole for sentence in END.split(paragraph)]
    return list(dict.fromkeys(s for s in found if 5 <= len(s.split()) <= 40))[:COUNT]


if __name__ == "__main__":
    print("\n".join(sentences()))
