"""Objects of a user's files and modules, named as `my_model.py:MyModel` or `package.module:Class`."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from tensorbow.errors import InvalidArgumentError, NotFoundError, TensorBowError
from tensorbow.files import shown
from tensorbow.graph import raising_line
from tensorbow.missing_names import did_you_mean

Result = TypeVar("Result")
_PREFIX = "tensorbow_user_code"  # of the names of modules loaded from files
_loaded: dict[tuple[Path, int, int], ModuleType] = {}  # by file, its size and time of change


class UserObject(NamedTuple):
    """An object, the name that it was given by, and the file that defines its module."""

    value: Any
    name: str
    file: Path | None


def is_object_name(text: str) -> bool:
    """True for FILE.py:NAME and PACKAGE.MODULE:NAME."""
    place, colon, name = text.rpartition(":")
    return bool(colon and place and all(part.isidentifier() for part in name.split(".")))


def find_object(name: str, what: str) -> UserObject:
    """Loads an object by its name, FILE.py:NAME or PACKAGE.MODULE:NAME, and runs the file if it is new.

    what: noun for messages, as "model". Raises NotFoundError for a file, module or name that is not there,
    InvalidArgumentError with the user's line for an error in the file.
    """
    place, _, attribute = name.rpartition(":")
    if place.endswith(".py") or os.sep in place:
        module = _from_file(Path(os.path.expanduser(place)), name, what)
    else:
        module = _from_path(place, name, what)
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise _no_object(value, part, place, name, what)
        value = getattr(value, part)
    file = getattr(module, "__file__", None)
    return UserObject(value, name, None if file is None else Path(file))


def name_of_object(value: Any) -> str:
    """Name by which `find_object` finds a class or function again; otherwise only its own name."""
    own: str = getattr(value, "__qualname__", type(value).__qualname__)
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    found: Any = module
    for part in own.split("."):
        found = getattr(found, part, None)
    file = getattr(module, "__file__", None)
    if found is not value or module is None:
        return own
    if module.__name__ == "__main__" or module.__name__.startswith(_PREFIX):
        return own if file is None else f"{os.path.relpath(file)}:{own}"
    return f"{module.__name__}:{own}"


@contextmanager
def errors_of_user(label: str, file: Path | None = None) -> Iterator[None]:
    """Context of a user's code: its errors become InvalidArgumentError, with the line that raised them.

    Errors of this library keep their class. file: whose innermost line is named, and beside which modules are
    found; else the outermost line that is not the library's.
    """
    try:
        with _importing_from(None if file is None else file.parent):
            yield
    except Exception as error:
        line = _line_in(error, file)
        text = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, TensorBowError):
            if (line and line in text) or label in text:
                raise
            classes: Any = type(error).__mro__  # of which some are made of more than a text
            kind = next(each for each in classes if not inspect.isfunction(each.__init__))
            raise kind(f"{label}: {text}{f' ({line})' if line else ''}") from error
        name = type(error).__name__
        what = text if text.startswith(name) else f"{name}: {text}"
        raise InvalidArgumentError(f"{label}: {f'{line}: ' if line else ''}{what}{_hint(error)}") from error


def _hint(error: Exception) -> str:
    """Hint for a model that was written for PyTorch; "" for other errors."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))
    text = str(error)
    in_torch = module.partition(".")[0] == "torch" and "Tensor" in text
    if not in_torch and "must be Tensor, not Tensor" not in text:
        return ""
    return (
        "; modules of PyTorch do not take TensorBow's tensors: write the model with tb.layers, or train it "
        "as an ONNX file of torch.onnx.export (tensorbow train module.onnx)"
    )


def called_by_name(function: Callable[..., Result], *arguments: Any, **further: Any) -> Result:
    """Calls a function with the further arguments that its signature has; the others are left out."""
    parameters = inspect.signature(function).parameters
    takes_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    return function(*arguments, **{name: v for name, v in further.items() if takes_all or name in parameters})


def is_of_torch(value: Any) -> bool:
    """True for a class of PyTorch, a class derived from one, and an object of such."""
    classes = value.__mro__ if inspect.isclass(value) else type(value).__mro__
    return any(each.__module__.partition(".")[0] == "torch" for each in classes)


def line_of_code(function: Any) -> str:
    """File and line at which a function, or the call of an object, is defined; "" for other callables."""
    function = getattr(function, "func", function)  # of a partial call
    method = function if inspect.isroutine(function) else type(function).__call__
    code = getattr(inspect.unwrap(method), "__code__", None)
    return "" if code is None else f"{code.co_filename}:{code.co_firstlineno} in {code.co_name}"


def _from_file(path: Path, name: str, what: str) -> ModuleType:
    try:
        path = path.resolve()
        about = path.stat()
    except (OSError, ValueError):
        raise NotFoundError(
            f"{what} {name}: there is no file {shown(path)}; give FILE.py:NAME, or PACKAGE.MODULE:NAME"
        ) from None
    key = path, about.st_size, about.st_mtime_ns
    if key in _loaded:
        return _loaded[key]
    found = spec_from_file_location(f"{_PREFIX}_{len(_loaded)}_{path.stem}", path)
    if found is None or found.loader is None:
        raise NotFoundError(f"{what} {name}: {shown(path)} is no Python file; give FILE.py:NAME")
    module = module_from_spec(found)
    sys.modules[module.__name__] = module  # data classes look their module up
    try:
        with errors_of_user(f"{what} {name}", path):
            found.loader.exec_module(module)
    except BaseException:
        del sys.modules[module.__name__]
        raise
    _loaded[key] = module
    return module


def _from_path(place: str, name: str, what: str) -> ModuleType:
    with _importing_from(Path.cwd()):
        try:
            return import_module(place)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{place}.".startswith(f"{error.name}."):
                raise InvalidArgumentError(f"{what} {name}: {_line_in(error, None)}: {error}") from error
            raise NotFoundError(
                f"{what} {name}: there is no module {error.name!r}; give FILE.py:NAME, or a module that is "
                f"installed, on PYTHONPATH or below {shown(Path.cwd())}"
            ) from None
        except Exception as error:
            with errors_of_user(f"{what} {name}"):
                raise error


@contextmanager
def _importing_from(folder: Path | None) -> Iterator[None]:
    """Context in which modules are first looked for in a folder."""
    if folder is None:
        yield
        return
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _line_in(error: BaseException, file: Path | None) -> str:
    """File and line of a user that an error comes from; "" if there is none."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{error.filename}:{error.lineno}"
    trace, found = error.__traceback__, ""
    while trace is not None and file is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            found = f"{file}:{trace.tb_lineno} in {trace.tb_frame.f_code.co_name}"
        trace = trace.tb_next
    if found:
        return found
    line = raising_line(error)
    return "" if line is None else f"{line.file}:{line.line} in {line.function}"


def _no_object(value: Any, part: str, place: str, name: str, what: str) -> NotFoundError:
    """The error for a name that a module or class lacks, with the names that it has."""
    module = getattr(value, "__name__", None)
    names = [
        each
        for each, found in vars(value).items()
        if not each.startswith("_") and callable(found) and getattr(found, "__module__", None) == module
    ]
    near = did_you_mean(part, names, before=f"{place}:")
    return NotFoundError(f"{what} {name}: {place} has no {part!r}, it has {', '.join(names) or 'none'}{near}")
