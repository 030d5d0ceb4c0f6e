"""Texts and queries as vectors that are near each other if they mean the same.

Above: ``search.py`` (tools), ``builtin/knowledge`` (passages). Below: what ``toolpost[knowledge]``
installs: a table of a vector for every piece of a word, which comes inside a package, so that
nothing is loaded from anywhere; the mean of them is a text's. It takes half a millisecond for a
passage, and no other processor than the one that is there. What the texts are is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

_TOKENIZER: Final = "tokenizers/l2_supercat_tokenizer_config.json"
_WEIGHTS: Final = "weights/l2_supercat_256.safetensors"
_TABLE: Final = "embedding.weight"
_MOST_PIECES: Final = 512
_NEAR, _FAR = 0.5, 0.03
"""Two texts nearer than the first say the same, as a rule; farther than the second, nothing."""


class Model(NamedTuple):
    numpy: Any
    tokenizer: Any
    table: Any

    def vectors(self, texts: Sequence[str]) -> Any:
        """One row of length 1 for each text."""
        np = self.numpy
        made = np.zeros((len(texts), self.table.shape[1]), np.float32)
        plain = [text.encode("utf-8", "replace").decode() for text in texts]  # no half characters
        for row, encoded in enumerate(self.tokenizer.encode_batch(plain, False, False)):
            if encoded.ids:
                mean = self.table[encoded.ids].astype(np.float32).mean(0)
                made[row] = mean / (np.linalg.norm(mean) + 1e-9)
        return made

    def packed(self, texts: Sequence[str]) -> list[bytes]:
        return [row.tobytes() for row in self.vectors(texts).astype(self.numpy.float16)]

    def near(self, query: str, packed: Sequence[bytes]) -> Any:
        """How near each of the texts is to the query, between 0 and 1."""
        np = self.numpy
        matrix = np.frombuffer(b"".join(packed), np.float16).reshape(len(packed), -1)
        cosines = matrix.astype(np.float32) @ self.vectors([query])[0]
        return np.clip((cosines - _FAR) / (_NEAR - _FAR), 0.0, 1.0)


@cache
def model() -> Model | None:
    """The model, or ``None`` if the extra is not installed."""
    found = find_spec("wordllama")
    if found is None or not found.submodule_search_locations:
        return None
    folder = Path(next(iter(found.submodule_search_locations)))
    try:
        numpy = import_module("numpy")
        tokenizers = import_module("tokenizers")
        tables = import_module("safetensors.numpy")
    except ImportError:
        return None
    if not (folder / _TOKENIZER).is_file() or not (folder / _WEIGHTS).is_file():
        return None
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / _TOKENIZER))
    tokenizer.enable_truncation(_MOST_PIECES)
    tokenizer.no_padding()
    return Model(numpy, tokenizer, tables.load_file(folder / _WEIGHTS)[_TABLE])
