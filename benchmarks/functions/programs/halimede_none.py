import sys

from halimede import model, serve


@model(isolation="none")
def double(x: list[float]) -> list[float]:
    return [2 * value for value in x]


serve(double, http_port=int(sys.argv[1]), allow_grpc=False, allow_metrics=False)
