"""Translation by T5: the checkpoint beside this file, as `transformers` saves it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast, T5ForConditionalGeneration
from transformers.utils import logging

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Translates all texts of a batch at once."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the tokenizer and the weights."""
        parameters = json.loads(args["model_config"])["parameters"]
        self.prefix = parameters["prefix"]["string_value"]
        self.max_tokens = int(parameters["max_tokens"]["string_value"])
        logging.disable_progress_bar()
        checkpoint = Path(pb_utils.get_model_dir()) / "checkpoint"
        self.tokenizer = PreTrainedTokenizerFast.from_pretrained(checkpoint)
        self.model = T5ForConditionalGeneration.from_pretrained(checkpoint)

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """A translation of each text; a request whose text is wrong has an error, and the others go on."""
        texts: list[str] = []
        places: list[slice | UnicodeDecodeError] = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
            try:
                decoded = [text.decode() for text in tensor.ravel()]
            except UnicodeDecodeError as error:
                places.append(error)
                continue
            places.append(slice(len(texts), len(texts) + len(decoded)))
            texts += decoded

        translations = np.array([one.encode() for one in self.translate(texts)], np.object_)
        return [self.respond(place, translations[:, None]) for place in places]

    def translate(self, texts: list[str]) -> list[str]:
        """The translations; shorter texts are padded, and the mask keeps that from having an effect."""
        if not texts:
            return []
        tokens = self.tokenizer(
            [self.prefix + text for text in texts],
            padding=True,
            truncation=True,
            max_length=self.max_tokens,
            return_tensors="pt",
        )
        with torch.inference_mode():
            generated = self.model.generate(
                input_ids=tokens.input_ids,
                attention_mask=tokens.attention_mask,
                max_new_tokens=self.max_tokens,
            )
        return self.tokenizer.batch_decode(generated, skip_special_tokens=True)

    def respond(
        self, place: slice | UnicodeDecodeError, translations: np.ndarray
    ) -> pb_utils.InferenceResponse:
        """The request's rows of the batch, or what is wrong with its texts."""
        if isinstance(place, UnicodeDecodeError):
            error = pb_utils.TritonError(f"TEXT must be UTF-8: {place}", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)
        return pb_utils.InferenceResponse([pb_utils.Tensor("TRANSLATION", translations[place])])
