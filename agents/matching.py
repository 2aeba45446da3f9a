"""How near two texts are in meaning, by the embeddings that come inside the `wordllama` package.

Loading costs half a second and a hundred megabytes, so it happens once per process and only where it is needed.
"""

import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]

_loading = threading.Lock()
_model: Any = None


def _load() -> Any:
    global _model
    if _model is None:
        with _loading:
            if _model is None:
                import wordllama

                # The weights are in the package; without these two it would look on the network first.
                folder = Path(wordllama.__file__).parent
                _model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
    return _model


def embed(texts: Sequence[str]) -> "Matrix":
    """Unit vectors, one row per text; all zeros where a text holds no token."""
    import numpy as np

    vectors: Matrix = _load().embed(list(texts))
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors /= np.where(lengths > 0, lengths, 1)
    return vectors


@lru_cache(maxsize=64)
def _embed_known(texts: tuple[str, ...]) -> "Matrix":
    return embed(texts)


def similarities(text: str, known: Sequence[str]) -> list[float]:
    """Cosine of the text with each of the known ones, -1 to 1. Vectors of the known ones are remembered."""
    if not known:
        return []
    found: list[float] = (_embed_known(tuple(known)) @ embed([text])[0]).tolist()
    return found
