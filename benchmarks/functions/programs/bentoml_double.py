import sys

import bentoml


@bentoml.service
class Double:
    @bentoml.api
    def double(self, x: list[float]) -> list[float]:
        return [2 * value for value in x]


if __name__ == "__main__":
    Double.serve_http(port=int(sys.argv[1]))
