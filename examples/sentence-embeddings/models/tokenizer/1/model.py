"""Texts to token ids, with the tokenizer that the encoder was trained with."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

import triton_python_backend_utils as pb_utils

PAD_TO_MULTIPLE_OF = 8  # few different lengths, so that requests of different batches have the same one


class TritonPythonModel:
    """Tokenizes all texts of a batch at once."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the tokenizer, which lies beside this file."""
        parameters = json.loads(args["model_config"])["parameters"]
        self.tokenizer = Tokenizer.from_file(str(Path(pb_utils.get_model_dir()) / "tokenizer.json"))
        self.tokenizer.enable_truncation(max_length=int(parameters["max_tokens"]["string_value"]))
        self.tokenizer.enable_padding(pad_to_multiple_of=PAD_TO_MULTIPLE_OF)

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """Ids and mask [rows, tokens] for each request; the number of tokens is that of the longest of all."""
        texts: list[str] = []
        rows: list[slice | UnicodeDecodeError] = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
            try:
                decoded = [text.decode() for text in tensor.ravel()]
            except UnicodeDecodeError as error:
                rows.append(error)
                continue
            rows.append(slice(len(texts), len(texts) + len(decoded)))
            texts += decoded

        encodings = self.tokenizer.encode_batch(texts)
        ids = np.array([encoding.ids for encoding in encodings], np.int64)
        mask = np.array([encoding.attention_mask for encoding in encodings], np.int64)
        return [self.respond(row, ids, mask) for row in rows]

    def respond(
        self, rows: slice | UnicodeDecodeError, ids: np.ndarray, mask: np.ndarray
    ) -> pb_utils.InferenceResponse:
        """The request's rows of the batch, or what is wrong with its texts."""
        if isinstance(rows, UnicodeDecodeError):
            error = pb_utils.TritonError(f"TEXT must be UTF-8: {rows}", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("input_ids", ids[rows]), pb_utils.Tensor("attention_mask", mask[rows])]
        )
