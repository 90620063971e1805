import sys

from ray import serve
from starlette.requests import Request


@serve.deployment
async def double(request: Request):
    x = (await request.json())["x"]
    return {"output": [2 * value for value in x]}


serve.start(http_options={"port": int(sys.argv[1])})
serve.run(double.bind(), blocking=True)
