"""Chat with a model through OpenAI's own client; the answer appears as it comes."""

import argparse

from openai import OpenAI

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--http", default="localhost:8000", help="where the server listens for HTTP")
parser.add_argument("--model", default="parrot", help="the model")
parser.add_argument("text", nargs="?", default="Good morning, parrot!", help="what to say")
arguments = parser.parse_args()

client = OpenAI(base_url=f"http://{arguments.http}/v1", api_key="none")
chunks = client.chat.completions.create(
    model=arguments.model,
    messages=[{"role": "user", "content": arguments.text}],
    stream=True,
    stream_options={"include_usage": True},
)
for chunk in chunks:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
    elif chunk.usage is not None:
        print(f"\n{chunk.usage.prompt_tokens} + {chunk.usage.completion_tokens} tokens")
