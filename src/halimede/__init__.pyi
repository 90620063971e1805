from halimede.api.background import BackgroundServer as BackgroundServer
from halimede.api.models import Model as Model
from halimede.api.responses import InferenceResponse as InferenceResponse
from halimede.api.server import Server as Server
from halimede.api.serving import serve as serve
from halimede.api.serving import serve_in_background as serve_in_background
from halimede.core.errors import HalimedeError as HalimedeError
from halimede.functions.declaration import DeclarationError as DeclarationError
from halimede.functions.declaration import Tensor as Tensor
from halimede.functions.declaration import model as model

__version__: str
