"""A program and data become a trained model and a report: `execute.py` is the way in. No TVM and no ONNX here.

`engines` call programs, `loop` trains, `limits` keep memory inside bounds that change, `files` is the run folder,
`sensors` measure, `checks` compare numbers.
"""
