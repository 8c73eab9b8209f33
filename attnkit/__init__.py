"""See and measure what attention heads do."""

from attnkit.checkpoint import load_checkpoint
from attnkit.model import ModelConfig, TinyTransformer
from attnkit.tasks import exhaustive, make_data

__version__ = "0.1.0"
__all__ = ["ModelConfig", "TinyTransformer", "exhaustive", "load_checkpoint", "make_data"]
