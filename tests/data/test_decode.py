"""One image file of any format becomes the pixels a person sees."""

from pathlib import Path

import numpy as np
import pytest
from files_to_read import save
from PIL import Image

from erd.data.decode import decode, greys, has_greys, opened


@pytest.mark.parametrize("suffix", ["png", "jpg", "jpeg", "bmp", "tif", "tiff", "webp", "gif"])
def test_formats(tmp_path: Path, suffix: str) -> None:
    photo = np.zeros((40, 60, 3), np.uint8) + np.array([200, 100, 0], np.uint8)
    pixels = decode(save(tmp_path / f"a.{suffix}", photo), 16).pixels
    assert pixels.shape == (16, 16, 3)
    assert np.abs(pixels.astype(int) - [200, 100, 0]).max() < 12  # lossy formats and palettes are near, not equal


def test_sixteen_bits_scale_by_the_full_range(tmp_path: Path) -> None:
    for suffix in ("png", "tif"):
        values = np.full((16, 16), 0, np.uint16)
        values[8:] = 25_700
        pixels = decode(save(tmp_path / f"a.{suffix}", values), 16).pixels
        assert (pixels[0] == 0).all()
        assert (pixels[-1] == 100).all()  # by its own range it would be 255
    assert (decode(save(tmp_path / "white.png", np.full((16, 16), 65_535, np.uint16)), 16).pixels == 255).all()


def test_all_greys_are_those_that_are_shown_and_more(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 65_536, (20, 30)).astype(np.uint16)
    for suffix in ("png", "tif"):
        file = save(tmp_path / f"a.{suffix}", values)
        assert has_greys(file)
        all_of_them, shown = greys(file), np.asarray(opened(file, 30).image)
        assert all_of_them is not None
        assert np.array_equal(np.rint(255 * np.asarray(all_of_them)), shown)
        assert len(np.unique(np.asarray(all_of_them))) > 500
    for plain in (np.zeros((16, 16), np.uint8), np.zeros((16, 16, 3), np.uint8)):
        file = save(tmp_path / "plain.png", plain)
        assert greys(file) is None
        assert not has_greys(file)
    (tmp_path / "none.png").write_text("no image")
    assert not has_greys(tmp_path / "none.png")


def test_modes_of_pillow(tmp_path: Path) -> None:
    red = Image.new("RGB", (16, 16), (250, 0, 0))
    for name, image in {
        "palette.png": red.convert("P", palette=Image.Palette.ADAPTIVE),
        "cmyk.tif": red.convert("CMYK"),
        "cmyk.jpg": red.convert("CMYK"),
        "alpha.png": red.convert("RGBA"),
    }.items():
        pixels = decode(save(tmp_path / name, image), 8).pixels
        assert pixels.shape == (8, 8, 3)
        assert np.abs(pixels.astype(int) - [250, 0, 0]).max() <= 2
    for mode in ("1", "L", "LA", "RGB"):  # a grey scan saved as colour is still grey
        pixels = decode(save(tmp_path / f"{mode}.png", Image.new("L", (16, 16), 255).convert(mode)), 8).pixels
        assert pixels.shape == (8, 8)
        assert (pixels == 255).all()


def test_a_photo_taken_sideways_is_turned(tmp_path: Path) -> None:
    values = np.zeros((32, 32), np.uint8)
    values[:16] = 255  # white above, in the stored order
    exif = Image.Exif()
    exif[0x0112] = 3  # held upside down
    pixels = decode(save(tmp_path / "a.jpg", values, exif=exif, quality=100), 32).pixels
    assert pixels[0].max() < 20
    assert pixels[-1].min() > 235


def test_a_phones_photo_with_a_preview_is_used(tmp_path: Path) -> None:
    photo, preview = Image.new("RGB", (32, 32), (200, 0, 0)), Image.new("RGB", (16, 16), (0, 0, 200))
    photo.save(tmp_path / "a.jpg", format="MPO", save_all=True, append_images=[preview])
    assert decode(tmp_path / "a.jpg", 8).pixels[4, 4].tolist() == pytest.approx([200, 0, 0], abs=5)
