from halimede.api.background import BackgroundServer as BackgroundServer
from halimede.api.serving import serve as serve
from halimede.api.serving import serve_in_background as serve_in_background
from halimede.functions.declaration import DeclarationError as DeclarationError
from halimede.functions.declaration import Tensor as Tensor
from halimede.functions.declaration import model as model

__version__: str
