"""Pixels come out upright, 8 bits, RGB, whatever file they were in; what cannot is refused."""

from __future__ import annotations

import os
import struct

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from rrgdata.images.read import ImageFacts, read_image, read_with_facts
from tests.rrgdata.dicom_files import refused

GREY = np.arange(64, dtype=np.uint8).reshape(8, 8) * 3


def read(path):
    image = read_image(path)
    assert image.mode == "RGB"
    pixels = np.asarray(image)
    assert (pixels[..., 0] == pixels[..., 1]).all() and (pixels[..., 0] == pixels[..., 2]).all()
    return pixels[..., 0]


def test_8_bit_grey_is_kept(tmp_path):
    for name in ("a.png", "a.tif"):
        Image.fromarray(GREY).save(tmp_path / name)
        assert (read(tmp_path / name) == GREY).all()


@pytest.mark.parametrize(
    ("area", "size"),
    [
        (None, (1600, 1200)),
        (1600 * 1200, (1600, 1200)),  # it will not be scaled
        (400 * 300 + 1, (1600, 1200)),
        (400 * 300, (800, 600)),
        (200 * 150, (400, 300)),
        (10, (200, 150)),
    ],
)
def test_a_large_jpeg_is_decoded_at_twice_the_size_that_is_wanted(tmp_path, area, size):
    rows, columns = np.mgrid[0:1200, 0:1600]
    grey = (120 + 80 * np.sin(rows / 90) * np.cos(columns / 70)).astype(np.uint8)
    for suffix in ("jpg", "png"):
        Image.fromarray(grey).save(tmp_path / f"large.{suffix}")
    assert read_image(tmp_path / "large.png", area).size == (1600, 1200)
    image = read_image(tmp_path / "large.jpg", area)
    assert image.size == size
    small = (100, 75)
    whole = Image.fromarray(grey).resize(small, Image.Resampling.BICUBIC)
    scaled = image.convert("L").resize(small, Image.Resampling.BICUBIC)
    difference = np.asarray(whole, float) - np.asarray(scaled, float)
    assert np.abs(difference).mean() < 0.5 and np.abs(difference).max() <= 3


def test_rgb_keeps_its_channels(tmp_path):
    rgb = np.stack([GREY, GREY[::-1], GREY.T], axis=-1)
    Image.fromarray(rgb).save(tmp_path / "a.png")
    assert (np.asarray(read_image(tmp_path / "a.png")) == rgb).all()


def test_palette_and_one_bit(tmp_path):
    Image.fromarray(GREY).convert("P").save(tmp_path / "p.png")
    assert (read(tmp_path / "p.png") == GREY).all()
    Image.fromarray(GREY > 90).save(tmp_path / "1.png")
    assert (read(tmp_path / "1.png") == np.where(GREY > 90, 255, 0)).all()


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_alpha(tmp_path, mode):
    image = Image.fromarray(GREY).convert(mode)
    image.save(tmp_path / "opaque.png")
    assert (read(tmp_path / "opaque.png") == GREY).all()
    alpha = np.full((8, 8), 255, np.uint8)
    alpha[3, 4] = 254
    image.putalpha(Image.fromarray(alpha))
    image.save(tmp_path / "see-through.png")
    refused(tmp_path / "see-through.png", "transparent", "254")


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_transparent_grey_level(tmp_path, dtype):
    Image.fromarray(GREY.astype(dtype)).save(tmp_path / "a.png", transparency=30)
    refused(tmp_path / "a.png", "transparent")


@pytest.mark.parametrize(("low", "high"), [(0, 4095), (1000, 1255), (0, 65535), (40000, 40010)])
@pytest.mark.parametrize("name", ["a.png", "a.tif"])
def test_16_bits_are_scaled_by_their_range(tmp_path, name, low, high):
    values = np.linspace(low, high, 64).round().astype(np.uint16).reshape(8, 8)
    Image.fromarray(values).save(tmp_path / name)
    wanted = (values - low) / (high - low) * 255
    assert np.abs(read(tmp_path / name) - wanted).max() <= 0.5


def test_16_bits_with_saturated_tails_are_scaled_by_their_range_too(tmp_path):
    values = np.full((64, 64), 2000, np.uint16)
    values[:8], values[8:16], values[16] = 0, 65535, np.arange(64) * 1000
    Image.fromarray(values).save(tmp_path / "a.png")
    grey, facts = read_with_facts(tmp_path / "a.png")
    assert np.abs(np.asarray(grey)[..., 0] - values / 65535 * 255).max() <= 0.5
    assert facts == ImageFacts("PNG of more than 8 bits", 64, 64)


def test_float_tiff(tmp_path):
    values = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
    Image.fromarray(values).save(tmp_path / "a.tif")
    assert np.abs(read(tmp_path / "a.tif") - (values + 1) * 127.5).max() <= 0.5
    values[0, 0] = np.nan
    Image.fromarray(values).save(tmp_path / "n.tif")
    refused(tmp_path / "n.tif", "not finite")


def test_16_bit_colour_is_refused_not_truncated(tmp_path):
    raw = np.zeros((2, 1 + 2 * 6), np.uint8)
    raw[:, 1:] = np.arange(24).reshape(2, 12)
    (tmp_path / "a.png").write_bytes(png(raw.tobytes(), 2, 2, depth=16, colour=2))
    refused(tmp_path / "a.png", "16 bits a channel")


def png(rows: bytes, width: int, height: int, depth: int, colour: int) -> bytes:
    """A PNG of filtered rows, chunk by chunk."""
    import zlib

    def chunk(kind: bytes, body: bytes) -> bytes:
        crc = zlib.crc32(kind + body)
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", crc)

    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def tiff(values: np.ndarray, photometric: int) -> bytes:
    """An uncompressed little-endian TIFF of one strip, written tag by tag."""
    numbers = {"u": 1, "i": 2, "f": 3}[values.dtype.kind]
    bits = values.dtype.itemsize * 8
    data = values.astype(values.dtype.newbyteorder("<")).tobytes()
    tags = [
        (256, values.shape[1]),
        (257, values.shape[0]),
        (258, bits),
        (259, 1),
        (262, photometric),
        (273, 8),
        (277, 1),
        (278, values.shape[0]),
        (279, len(data)),
        (339, numbers),
    ]
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return (
        struct.pack("<2sHI", b"II", 42, 8 + len(data))
        + data
        + struct.pack("<H", len(tags))
        + entries
        + struct.pack("<I", 0)
    )


@pytest.mark.parametrize("photometric", [0, 1])
@pytest.mark.parametrize("kind", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"])
def test_a_tiff_of_any_numbers_rises_with_them_or_is_refused_by_their_name(
    tmp_path, kind, photometric
):
    """Signed bytes were read as unsigned ones: black was white."""
    values = np.linspace(-64, 63, 64).round().reshape(8, 8) + (64 if kind[0] == "u" else 0)
    (tmp_path / "a.tif").write_bytes(tiff(values.astype(kind), photometric))
    if kind in ("u1", "u2", "f4") or (photometric and kind in ("i1", "i2", "i4", "u4")):
        grey = read(tmp_path / "a.tif").astype(int)
        rises = np.diff(grey.ravel()) > 0
        assert rises.all() if photometric else not rises.any()
        assert kind != "i1" or (grey == values + 128).all()
    else:
        name = {"u": "unsigned", "i": "signed", "f": "floating"}[kind[0]]
        bits = f"TIFF of {name} numbers of {8 * int(kind[1])} bits"
        refused(tmp_path / "a.tif", bits, "write it as uint16")


@pytest.mark.parametrize(
    ("key", "value", "inverts"),
    [
        ("PhotometricInterpretation", "MONOCHROME1", True),
        ("PhotometricInterpretation", "WhiteIsZero", True),
        ("Photometric Interpretation", "monochrome1", True),
        ("PhotometricInterpretation", "MONOCHROME2", False),
        ("Comment", "PhotometricInterpretation: MONOCHROME1", True),
        ("Comment", "was MONOCHROME1 once", False),
    ],
)
def test_png_text_declares_polarity(tmp_path, key, value, inverts):
    info = PngImagePlugin.PngInfo()
    info.add_text(key, value)
    Image.fromarray(GREY).save(tmp_path / "a.png", pnginfo=info)
    assert (read(tmp_path / "a.png") == (255 - GREY if inverts else GREY)).all()


def test_tiff_description_declares_polarity(tmp_path):
    text = "PhotometricInterpretation=MONOCHROME1"
    Image.fromarray(GREY).save(tmp_path / "a.tif", tiffinfo={270: text})
    assert (read(tmp_path / "a.tif") == 255 - GREY).all()


def test_missing_empty_and_foreign_files(tmp_path):
    refused(tmp_path / "absent.png", "no such image file")
    refused(tmp_path, "no such image file")
    (tmp_path / "empty.png").write_bytes(b"")
    refused(tmp_path / "empty.png", "is empty")
    (tmp_path / "text.png").write_text("not an image")
    refused(tmp_path / "text.png", "wanted PNG, JPEG, TIFF or DICOM")
    for suffix in ("bmp", "gif", "webp"):
        Image.fromarray(GREY).save(tmp_path / f"a.{suffix}")
        (tmp_path / f"a.{suffix}").rename(tmp_path / f"{suffix}.png")
        refused(tmp_path / f"{suffix}.png", "wanted PNG, JPEG, TIFF or DICOM")


def test_postscript_is_not_given_to_ghostscript(tmp_path, monkeypatch):
    gs = tmp_path / "gs"
    gs.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    gs.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)  # looked for anew
    header = "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"
    (tmp_path / "x.png").write_text(header)
    refused(tmp_path / "x.png", "wanted PNG, JPEG, TIFF or DICOM")
    assert not (tmp_path / "ran").exists()


TAILS = (b"", b"\0" * 10_000, b"\xff" * 9, b"\r\n", bytes(range(256)) * 40, b"\0" * 5001)


@pytest.mark.parametrize("suffix", ["png", "jpg", "tif"])
def test_what_lies_behind_the_end_is_passed_over_and_hides_no_truncation(tmp_path, suffix):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)
    whole, file = tmp_path / f"whole.{suffix}", tmp_path / f"a.{suffix}"
    more = {"comment": b"\xff\xd9 \xff\xda"} if suffix == "jpg" else {}
    Image.fromarray(noise).save(whole, **more)
    raw, pixels = whole.read_bytes(), read(whole)
    for tail in TAILS:
        file.write_bytes(raw + tail)
        assert (read(file) == pixels).all()
        for keep in (0.02, 0.3, 0.6, 0.9) if suffix != "tif" or not tail else ():
            # as of a copy into a file made large enough before, which broke off
            file.write_bytes(raw[: int(len(raw) * keep)] + tail)
            refused(file)


def test_a_jpeg_is_whole_whatever_stands_between_its_segments(tmp_path):
    Image.fromarray(GREY).save(tmp_path / "a.jpg")
    raw = (tmp_path / "a.jpg").read_bytes()
    thumbnail = b"\xff\xe1" + struct.pack(">H", len(raw) + 2) + raw
    for number, between in enumerate((b"\xff\xff", thumbnail)):
        file = tmp_path / f"{number}.jpg"
        file.write_bytes(raw[:2] + between + raw[2:])
        assert (read(file) == read(tmp_path / "a.jpg")).all()
        file.write_bytes(raw[:2] + between + raw[2:-20] + b"\0" * 20)
        refused(file, "truncated")


def test_damaged_png(tmp_path):
    Image.fromarray(GREY).save(tmp_path / "a.png")
    raw = (tmp_path / "a.png").read_bytes()
    place = raw.index(b"IDAT") + 8
    spoilt = raw[:place] + bytes([raw[place] ^ 0xFF]) + raw[place + 1 :]
    for content, words in ((spoilt, "cannot be decoded"), (raw[:-12], "truncated")):
        (tmp_path / "b.png").write_bytes(content)
        refused(tmp_path / "b.png", words)


def test_tiff_whose_second_frame_has_no_size(tmp_path):
    Image.fromarray(GREY).save(tmp_path / "a.tif")
    data = bytearray((tmp_path / "a.tif").read_bytes())
    (directory,) = struct.unpack_from("<I", data, 4)
    (tags,) = struct.unpack_from("<H", data, directory)
    struct.pack_into("<I", data, directory + 2 + 12 * tags, len(data))
    data += struct.pack("<HHHIII", 1, 258, 3, 1, 8, 0)
    (tmp_path / "a.tif").write_bytes(data)
    refused(tmp_path / "a.tif", "cannot be decoded", "copy it again")


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_constant(tmp_path, dtype):
    Image.fromarray(np.full((8, 8), 77, dtype)).save(tmp_path / "a.png")
    refused(tmp_path / "a.png", "same value")


def test_several_frames(tmp_path):
    frames = [Image.fromarray(GREY), Image.fromarray(GREY.T.copy())]
    frames[0].save(tmp_path / "a.tif", save_all=True, append_images=frames[1:])
    refused(tmp_path / "a.tif", "2 frames")


TURNED = {
    1: lambda grey: grey,
    2: np.fliplr,
    3: lambda grey: np.rot90(grey, 2),
    4: np.flipud,
    5: np.transpose,
    6: lambda grey: np.rot90(grey, -1),
    7: lambda grey: np.rot90(grey, 2).T,
    8: np.rot90,
    9: lambda grey: grey,
}


@pytest.mark.parametrize("orientation", TURNED)
@pytest.mark.parametrize("name", ["a.png", "a.tif"])
def test_every_exif_orientation(tmp_path, orientation, name):
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(GREY).save(tmp_path / name, exif=exif)
    assert (read(tmp_path / name) == TURNED[orientation](GREY)).all()


def test_a_damaged_exif_entry_beside_the_orientation_is_passed_over(tmp_path):
    # ImageWidth as text, which Pillow reads and cannot write
    entries = [(0x112, 3, 1, b"\0\6\0\0"), (0x100, 2, 4, b"abc\0")]
    body = b"".join(struct.pack(">HHL4s", *entry) for entry in entries)
    exif = b"Exif\0\0MM\0*\0\0\0\x08" + struct.pack(">H", len(entries)) + body + bytes(4)
    Image.fromarray(GREY).save(tmp_path / "a.jpg", exif=exif, quality=95)
    Image.fromarray(GREY).save(tmp_path / "b.jpg", quality=95)
    assert (read(tmp_path / "a.jpg") == np.rot90(read(tmp_path / "b.jpg"), -1)).all()
