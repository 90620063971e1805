"""The pipeline of OpenVINO GenAI in a loop, in a process of its own: what serving is held against.

Run as a program with the model's directory and the number of processors. Each line that it reads is a JSON object with
`callers`, `seconds`, `prompt` and `tokens`; it answers with a JSON object: `rate` in tokens a second, and `first` in
seconds, the median time from a prompt to its first token.
"""

import json
import statistics
import sys
import time
from typing import Any

import openvino_genai

from benchmarks.language.writer import LIMITS


class Loop:
    """Texts that are written one after another, by so many callers at once."""

    def __init__(self, directory: str, threads: int) -> None:
        scheduler = openvino_genai.SchedulerConfig()
        for name, value in LIMITS.items():
            setattr(scheduler, name, value)
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(
            directory, scheduler, "CPU", {"INFERENCE_NUM_THREADS": threads}
        )
        self._tokenizer = openvino_genai.Tokenizer(directory)
        self._number = 0

    def run(self, callers: int, seconds: float, prompt: str, tokens: int) -> dict[str, float]:
        """Write texts for so long."""
        firsts: list[float] = []
        written = 0
        began = time.perf_counter()
        running = [self._begin(prompt, tokens) for _ in range(callers)]
        while running:
            self._pipeline.step()
            now = time.perf_counter()
            over = now - began > seconds
            going = []
            for handle, started, count in running:
                while handle.can_read():
                    read = sum(len(output.generated_ids) for output in handle.read().values())
                    if not count:
                        firsts.append(now - started)
                    count += read
                    written += 0 if over else read
                if count < tokens:
                    going.append((handle, started, count))
                    if over:
                        handle.cancel()
                elif not over:
                    going.append(self._begin(prompt, tokens))
            running = [] if over else going
            if over:
                self._pipeline.step()
        return {"rate": written / seconds, "first": statistics.median(firsts)}

    def _begin(self, prompt: str, tokens: int) -> tuple[Any, float, int]:
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = tokens
        started = time.perf_counter()
        self._number += 1
        messages = [{"role": "user", "content": prompt}]
        text = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        encoded = self._tokenizer.encode(text, add_special_tokens=False).input_ids
        return self._pipeline.add_request(self._number, encoded, config), started, 0


def main() -> None:
    """Answer line by line."""
    loop = Loop(sys.argv[1], int(sys.argv[2]))
    print("{}", flush=True)
    for line in sys.stdin:
        print(json.dumps(loop.run(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
