"""The HTML templates of this folder, and pictures inside pages that need no other file."""

import base64
import io
from pathlib import Path

import jinja2
import numpy as np
from PIL import Image


def template(name: str) -> jinja2.Template:
    folder = Path(__file__).with_name("templates")
    return jinja2.Environment(loader=jinja2.FileSystemLoader(folder), autoescape=True).get_template(name)


def embedded(png: bytes) -> str:
    """For `src="data:image/png;base64,…"`."""
    return base64.b64encode(png).decode()


def png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()
