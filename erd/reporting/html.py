"""The HTML templates of this folder, and pictures inside pages that need no other file."""

import base64
import io
from pathlib import Path

import jinja2
import numpy as np
from PIL import Image

LEAST = 224  # pixels a side: smaller images are enlarged here, smoothly, and not by the browser
QUALITY = 92  # of JPEG; a hundred photographs as PNG would be a page of 15 MB


def template(name: str) -> jinja2.Template:
    folder = Path(__file__).with_name("templates")
    return jinja2.Environment(loader=jinja2.FileSystemLoader(folder), autoescape=True).get_template(name)


def embedded(png: bytes) -> str:
    """For `src="data:image/png;base64,…"`."""
    return base64.b64encode(png).decode()


def picture(pixels: np.ndarray) -> str:
    """An image at a size that a person can judge, for `src="data:image/jpeg;base64,…"`."""
    image = Image.fromarray(pixels.squeeze())
    if (factor := LEAST / max(image.size)) > 1:
        size = round(image.width * factor), round(image.height * factor)
        image = image.resize(size, Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY, subsampling=0)
    return embedded(buffer.getvalue())
