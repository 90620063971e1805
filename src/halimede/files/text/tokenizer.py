"""The Python model that makes texts to token ids; its file needs the library `tokenizers`, and nothing of Halimede."""

from typing import Final

MODEL: Final = '''"""Written by Halimede: texts to token ids, with the tokenizer that the encoder was trained with."""

import json
import os
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the encoder has the processors
from tokenizers import Tokenizer  # noqa: E402


class TritonPythonModel:
    """Tokenizes all texts of a batch at once. Nothing is padded here but the texts of one request."""

    def initialize(self, args):
        config = json.loads(args["model_config"])
        parameters = {key: value["string_value"] for key, value in config["parameters"].items()}
        self.tokenizer = Tokenizer.from_file(str(Path(pb_utils.get_model_dir()) / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(max_length=int(parameters["max_tokens"]))
        self.pad_id = int(parameters["pad_id"])
        self.prefix = parameters.get("prefix", "")
        self.lower_case = parameters.get("lower_case") == "true"
        self.outputs = [output["name"] for output in config["output"]]

    def execute(self, requests):
        texts, places = [], []
        for request in requests:
            rows = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy().ravel()
            try:
                decoded = [self.prefix + row.decode() for row in rows]
            except UnicodeDecodeError as error:
                places.append(error)
                continue
            places.append(slice(len(texts), len(texts) + len(decoded)))
            texts += [text.lower() for text in decoded] if self.lower_case else decoded
        encodings = self.tokenizer.encode_batch_fast(texts)
        return [self.respond(place, encodings) for place in places]

    def respond(self, place, encodings):
        if isinstance(place, UnicodeDecodeError):
            error = pb_utils.TritonError(f"TEXT must be UTF-8: {place}", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)
        rows = [encoding.ids for encoding in encodings[place]]
        lengths = np.array([[len(row)] for row in rows], np.int32)
        longest = int(lengths.max())
        if len(rows) == 1:
            ids, mask = np.array(rows, np.int64), np.ones((1, longest), np.int64)
        else:
            ids = np.array([row + [self.pad_id] * (longest - len(row)) for row in rows], np.int64)
            mask = (np.arange(longest) < lengths).astype(np.int64)
        values = {"input_ids": ids, "attention_mask": mask, "num_input_tokens": lengths}
        if "token_type_ids" in self.outputs:
            values["token_type_ids"] = np.zeros_like(ids)
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, values[name]) for name in self.outputs])
'''
