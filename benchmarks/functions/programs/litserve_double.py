import sys

import litserve


class Double(litserve.LitAPI):
    def setup(self, device):
        pass

    def predict(self, request):
        return {"output": [2 * value for value in request["x"]]}


if __name__ == "__main__":
    litserve.LitServer(Double(), accelerator="cpu").run(port=int(sys.argv[1]), generate_client_file=False)
