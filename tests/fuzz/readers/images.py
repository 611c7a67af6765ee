"""A picture: the check of a folder before a run, and its pixels."""

from __future__ import annotations

from edgetrain.dataset.images import read_image_folder
from edgetrain.dataset.pictures import read_picture
from tests.fuzz.harness import documented, file_of
from tests.fuzz.mutations import mutate_png

WORDS = (
    *(b"\x89PNG\r\n\x1a\n", b"IHDR", b"IDAT", b"IEND\xaeB`\x82", b"PLTE", b"tRNS", b"eXIf", b"iCCP", b"zTXt", b"acTL"),
    *(b"\xff\xd8\xff\xe0", b"JFIF", b"Exif\x00\x00", b"\xff\xda", b"\xff\xc4", b"\xff\xdb", b"\xff\xc2", b"\xff\xd9"),
    *(b"GIF89a", b"RIFF", b"WEBPVP8 ", b"BM", b"II*\x00", b"MM\x00*", b"P6\n1 1\n255\n"),
)


mutate = mutate_png


def one_input(data: bytes) -> None:
    name = "1.jpg" if data.startswith(b"\xff\xd8") else "1.png"
    with file_of(data, f"class/{name}") as path:
        with documented():
            read_picture(path)
        with documented():
            read_image_folder(path.parent.parent, skip_broken=True)
