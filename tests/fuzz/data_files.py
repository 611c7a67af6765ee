"""Seeds of the corpus: small files of data and tokenizers, written by the libraries that people write them with."""

from __future__ import annotations

import io
import json
import struct
import wave
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Files = Mapping[str, bytes]
_PIXELS = (np.arange(48) * 5 % 256).astype(np.uint8).reshape(4, 4, 3)


def _npz() -> Files:
    x, y = np.arange(24, dtype=np.float32).reshape(6, 4), np.arange(6) % 2
    made: dict[str, dict[str, Any]] = {
        "plain": {"x": x, "y": y},
        "parts": {"x_train": x.astype(np.uint8), "y_train": y, "x_test": x[:2], "y_test": y[:2]},
        "named": {"x.image": x, "x.size": y.astype(np.int8), "y": x[:, 0]},
        "columns": {"x": np.asfortranarray(x), "y": y.astype(">i4")},
        "series": {"x": x, "lengths": np.array([2, 4]), "y": y[:2], "groups": y[:2]},
    }
    files = {}
    for name, arrays in made.items():
        out = io.BytesIO()
        (np.savez_compressed if name == "parts" else np.savez)(out, **arrays)
        files[name] = out.getvalue()
    return files


def _object_arrays() -> Files:
    recordings = [np.arange(6, dtype=np.float64).reshape(3, 2), np.arange(4, dtype=np.float64).reshape(2, 2)]
    objects = np.empty(2, dtype=object)
    objects[:] = recordings
    watch = {"X": objects, "y": np.array([0, 1]), "y_labels": np.array(["walk", "run"]), "subject": np.array([0, 1])}
    files = {}
    for name, value in (("watch", watch), ("list", [1, "a", None, (2.5, b"b")]), ("array", recordings[0])):
        out = io.BytesIO()
        holder = np.empty((), dtype=object)
        holder[()] = value
        np.save(out, holder, allow_pickle=True)
        files[name] = out.getvalue()
    return files


def _wav() -> Files:
    files = {}
    for width, channels in ((1, 1), (2, 2), (3, 1), (4, 1)):
        out = io.BytesIO()
        with wave.open(out, "wb") as file:
            file.setsampwidth(width)
            file.setnchannels(channels)
            file.setframerate(8000)
            file.writeframes(bytes(range(256)) * 2 * width)
        files[f"{8 * width}-bit"] = out.getvalue()
    return files


def _images() -> Files:
    from PIL import Image

    colour = Image.fromarray(_PIXELS)
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation
    deep = Image.fromarray(_PIXELS[:, :, 0].astype(np.uint16) << 8)
    made: dict[str, tuple[Any, str, dict[str, Any]]] = {
        "colour.png": (colour, "PNG", {}),
        "alpha.png": (colour.convert("RGBA"), "PNG", {}),
        "palette.png": (colour.convert("P"), "PNG", {"transparency": 3}),
        "grey-alpha.png": (colour.convert("LA"), "PNG", {}),
        "bit.png": (colour.convert("1"), "PNG", {}),
        "deep.png": (deep, "PNG", {}),
        "turned.jpg": (colour, "JPEG", {"exif": exif}),
        "progressive.jpg": (colour.convert("L"), "JPEG", {"progressive": True}),
        "cmyk.jpg": (colour.convert("CMYK"), "JPEG", {}),
        "small.gif": (colour.convert("P"), "GIF", {}),
        "small.bmp": (colour, "BMP", {}),
        "small.tiff": (colour, "TIFF", {"compression": "tiff_lzw"}),
        "float.tiff": (Image.fromarray(_PIXELS[:, :, 0].astype(np.float32)), "TIFF", {}),
        "small.webp": (colour, "WEBP", {}),
    }
    files = {}
    for name, (image, kind, options) in made.items():
        out = io.BytesIO()
        image.save(out, kind, **options)
        files[name] = out.getvalue()
    return files


def _csv() -> Files:
    plain = "a,b,label\n1,2.5,yes\n3,4,no\n5,6,yes\n7,,no\n"
    german = "a;Wort;label\n1,5;rot;1\n2;blau;2\n3,25;rot;1\n"
    series = "series,group,a,b,label\n1,x,1,2,run\n1,x,2,3,run\n2,y,3,4,walk\n2,y,4,5,walk\n"
    return {
        "plain": plain.encode(),
        "german": german.encode("utf-8-sig"),
        "utf-16": german.replace(";", "\t").encode("utf-16"),
        "series": series.encode(),
        "quoted": b'"a ""b""",c,label\r\n"1\n",2,"x,y"\r\n3,4,z\r\n',
    }


def _jsonl() -> Files:
    records = [{"text": "dear friend, the déjà-vu", "label": "spam"}, {"text": "東京 the", "label": "ham"}]
    lines = [json.dumps(record) for record in records * 2]
    return {"plain": "\n".join(lines).encode(), "marked": ("\ufeff" + "\n\n".join(lines)).encode()}


def _parquet() -> Files:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {"a": [1.5, None, 3.0, 4.0], "word": ["x", "y", "x", None], "n": [1, 2, 3, 4], "label": [0, 1, 0, 1]}
    )
    files = {}
    for name, options in (("plain", {"compression": "none"}), ("packed", {"compression": "gzip"})):
        out = io.BytesIO()
        pq.write_table(table, out, store_schema=name == "plain", **options)
        files[name] = out.getvalue()
    return files


def _tokenizers() -> Files:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    words = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "[PAD]": 3, "dear": 4, "friend": 5, "##s": 6}
    kinds = {
        "words": models.WordLevel(words, unk_token="[UNK]"),
        "pieces": models.WordPiece(words, unk_token="[UNK]"),
        "bpe": models.BPE({"d": 0, "e": 1, "de": 2, "<unk>": 3}, [("d", "e")], unk_token="<unk>"),
        "unigram": models.Unigram([("<unk>", 0.0), ("de", -1.0), ("ar", -2.0)], 0, False),
    }
    files = {}
    for name, model in kinds.items():
        tokenizer = Tokenizer(model)
        if name == "pieces":
            tokenizer.normalizer = normalizers.BertNormalizer()
            tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
            tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
            tokenizer.enable_padding(pad_id=3, pad_token="[PAD]")
        elif name == "bpe":
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
            tokenizer.add_special_tokens(["<|endoftext|>"])
        elif name == "unigram":
            tokenizer.normalizer = normalizers.Replace("a", "b")
            tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
            tokenizer.post_processor = processors.TemplateProcessing("<s> $0", special_tokens=[("<s>", 1)])
        files[name] = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False).encode()
    return files


def _vocabularies() -> Files:
    pieces = "[PAD] [UNK] [CLS] [SEP] dear friend , the deja - vu ##s ##end 東 京".split()  # noqa: SIM905
    return {"bert": ("\n".join(pieces) + "\n").encode()}


def _idx() -> Files:
    labels = struct.pack(">BBBBI", 0, 0, 8, 1, 6) + bytes([0, 1] * 3)
    images = struct.pack(">BBBBIII", 0, 0, 8, 3, 6, 2, 2) + bytes(range(24))
    import gzip

    packed = gzip.compress(images, mtime=0)
    return {"plain": images + b"%%%" + labels, "packed": packed + b"%%%" + labels}


def _mails() -> Files:
    html = b"<p>Dear <b>friend</b> &amp; co<script>x</script><!-- c --></p>"
    parts = (
        b"Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/html; charset=latin-1\n\n"
        + html
        + b"\n--b--\n"
    )
    coded = b"Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: base64\n\nRGVhciBmcmllbmQ=\n"
    return {
        "plain": b"From: a@b\nSubject: =?utf-8?q?caf=C3=A9?=\n\nDear friend\n",
        "parts": b"Subject: two\n" + parts,
        "coded": coded,
    }


def _weights() -> Files:
    from safetensors.numpy import save

    return {
        "safetensors": save({"a": np.arange(4, dtype=np.float32), "b": np.ones((2, 2), np.int64)}),
        "torch": _torch_state(),
    }


def _torch_state() -> bytes:
    """The old format of `torch.save`, as the packages have it whose weights are read: pickles, then the numbers."""
    strings = (b"ccollections\nOrderedDict\n)R", b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch\nFloatStorage\n")
    ordered, rebuild, storage = strings
    tensor = rebuild + b"((X\x07\x00\x00\x00storage" + storage + b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04NtQ"
    tensor += b"K\x00(K\x02K\x02t(K\x02K\x01t\x89" + ordered + b"tR"
    state = b"\x80\x02" + ordered + b"(X\x01\x00\x00\x00a" + tensor + b"u."
    magic = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
    head = magic + b"\x80\x02M\xe9\x03." + b"\x80\x02}."
    return head + state + b"\x80\x02]X\x01\x00\x00\x000a." + struct.pack("<q4f", 4, 1, 2, 3, 4)


MAKERS: Mapping[str, Callable[[], Files]] = {
    "npz": _npz,
    "object_array": _object_arrays,
    "wav": _wav,
    "images": _images,
    "csv_table": _csv,
    "jsonl": _jsonl,
    "parquet": _parquet,
    "tokenizer": _tokenizers,
    "vocabulary": _vocabularies,
    "idx": _idx,
    "mails": _mails,
    "weights": _weights,
}
