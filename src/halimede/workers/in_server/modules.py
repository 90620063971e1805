"""The modules of one instance, apart from those of all others.

In a worker process a model has `sys.modules` to itself. Here each instance has a package of its own, in which its file
and what lies beside it are modules. What they import goes by an `__import__` of the instance's own, which looks there
for what the interpreter does not have: so two models may each have a `utils.py`, and a model that is loaded again gets
what the files hold now. Code finds that function, and the instance's `print`, where Python looks for it: in the
`__builtins__` of the module that it was defined in, whatever thread it runs on.
"""

import builtins
import importlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

_PACKAGE: Final = "halimede_model_{}_{}"
_NUMBERS: Final = count(1)
_import: Final = builtins.__import__


class ModelModules:
    """The package of one instance.

    Attributes:
        name: of the package; loggers that modules name after themselves have names below it.
        names: what the code of its modules so far refers to by name: variables, attributes, modules.
    """

    def __init__(
        self,
        model: str,
        directories: Sequence[Path],
        given: Mapping[str, ModuleType],
        write: Callable[..., None],
    ) -> None:
        """An empty package.

        Args:
            model: the model's name.
            directories: where its modules are looked for.
            given: modules that it gets in place of the interpreter's, by name.
            write: takes the place of `print`.
        """
        self.name = _PACKAGE.format(next(_NUMBERS), re.sub(r"\W", "_", model))
        self.names: set[str] = set()
        self._directories = list(dict.fromkeys(str(directory) for directory in directories))
        self._importlib = ModuleType(importlib.__name__, importlib.__doc__)
        self._importlib.__dict__.update(vars(importlib), import_module=self._import_by_name)
        self._given = {"importlib": self._importlib, **given}
        self._local: set[str] = set()
        self._builtins = {**vars(builtins), "__import__": self._import_for_model, "print": write}
        package = ModuleType(self.name)
        package.__path__ = self._directories
        sys.modules[self.name] = package
        _FINDER.packages[self.name] = self
        if _FINDER not in sys.meta_path:
            sys.meta_path.insert(0, _FINDER)
        self._forget_files()  # they may be new since a directory was last looked at

    def load(self, path: Path) -> ModuleType:
        """The module that a file in one of the directories holds."""
        return _import(f"{self.name}.{path.stem}", fromlist=("",))

    def run(self, code: CodeType, module: ModuleType) -> None:
        """Run a module's code."""
        self.names.update(_names(code))
        module.__dict__["__builtins__"] = self._builtins
        exec(code, module.__dict__)  # noqa: S102 - which is what importing is

    def close(self) -> None:
        """Let the interpreter forget the modules. Code that still runs goes on."""
        del _FINDER.packages[self.name]
        for name in list(sys.modules):  # other threads import meanwhile
            if name == self.name or name.startswith(self.name + "."):
                del sys.modules[name]
        self._forget_files()
        self._builtins["__import__"] = _import  # no more a part of a circle
        self._importlib.__dict__["import_module"] = importlib.import_module
        self._builtins["print"] = print

    def _forget_files(self) -> None:
        """Have the interpreter look at the directories again.

        `importlib.invalidate_caches` does so for all directories, and fails if two threads call it at the same time.
        """
        for path in list(sys.path_importer_cache):
            if path.startswith(tuple(self._directories)):
                sys.path_importer_cache.pop(path, None)

    def _import_for_model(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,  # noqa: A002 - as of `__import__`
        locals: Mapping[str, Any] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """As `__import__`."""
        if level == 0:
            if (given := self._given.get(name)) is not None:
                return given
            top = name.partition(".")[0]
            if top == "importlib" and not fromlist:  # of whose submodules this names one
                _import(name)
                self._importlib.__dict__.update(vars(importlib), import_module=self._import_by_name)
                return self._importlib
            if self._is_local(top):
                leaf = _import(f"{self.name}.{name}", globals, locals, fromlist or ("",), 0)
                return leaf if fromlist else sys.modules[f"{self.name}.{top}"]
        return _import(name, globals, locals, fromlist or (), level)

    def _import_by_name(self, name: str, package: str | None = None) -> ModuleType:
        """As `importlib.import_module`."""
        if not name.startswith("."):
            if (given := self._given.get(name)) is not None:
                return given
            if self._is_local(name.partition(".")[0]):
                return _import(f"{self.name}.{name}", fromlist=("",))
        return importlib.import_module(name, package)

    def _is_local(self, top: str) -> bool:
        """Whether the module lies beside the model, and the interpreter has none of that name."""
        if top in self._local:
            return True
        if top in sys.modules or PathFinder.find_spec(f"{self.name}.{top}", self._directories) is None:
            return False
        if find_spec(top) is not None:
            return False
        self._local.add(top)
        return True


class _Finder(MetaPathFinder):
    """Finds the modules of instances.

    Attributes:
        packages: those of the instances, by name.
    """

    def __init__(self) -> None:
        self.packages: dict[str, ModelModules] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module is; None if it is in no package of an instance."""
        modules = self.packages.get(fullname.partition(".")[0])
        if modules is None or path is None:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path, modules)
        return spec


_FINDER: Final = _Finder()


class _Loader(SourceFileLoader):
    """Loads a module of an instance, always from its source."""

    def __init__(self, fullname: str, path: str, modules: ModelModules) -> None:
        super().__init__(fullname, path)
        self._modules = modules

    def get_code(self, fullname: str) -> CodeType:
        """The code that the file holds now."""
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code

    def exec_module(self, module: ModuleType) -> None:
        """Run the file's code in the module."""
        self._modules.run(self.get_code(module.__name__), module)


def _names(code: CodeType) -> Iterator[str]:
    """The names in the code, and in that of its functions and classes."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
