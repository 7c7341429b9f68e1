"""Changes of code in the running process: other sources for modules, and other code for functions.

A module's source can be replaced only before it is imported. The code of a function can be replaced
at any time, if the change is inside it.
"""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import cast, final


@final
@dataclass(frozen=True, slots=True)
class Sources:
    """A finder for `sys.meta_path`: executes these sources as the modules of these names, in place
    of their own, with `beside` among their globals."""

    sources: Mapping[str, str]
    beside: Mapping[str, object]

    def find_spec(
        self, name: str, path: object = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Called by Python's import."""
        if name not in self.sources:
            return None
        found = PathFinder.find_spec(name, list(sys.modules[name.rpartition(".")[0]].__path__))
        assert found is not None, name
        found.loader = cast("Loader", self)
        return found

    def create_module(self, spec: ModuleSpec) -> None:
        """Called by Python's import, which then makes the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Called by Python's import."""
        assert module.__file__ is not None
        module.__dict__.update(self.beside)
        code = _compiled(self.sources[module.__name__], module.__file__)
        exec(code, module.__dict__)


def replace_functions(module: ModuleType, source: str) -> bool:
    """Gives a module's functions the code that they have in this source, those too that other
    functions have made already. Returns False, and changes nothing, if the source differs outside
    functions, or a function cannot take the code."""
    file = module.__file__
    assert file is not None
    # 1. Which functions differ, by their code. A difference outside of functions, such as a
    # constant of the module, would need the module to be executed again.
    changed = _changed(_compiled(Path(file).read_bytes(), file), _compiled(source, file))
    if changed is None:
        return False
    # 2. Every function of the process with one of these codes: the module's own, methods, and those
    # that decorators and closures have kept.
    functions = _every_function()
    found = [
        (one, now)
        for was, now in (*changed, *_made_by(changed))
        for one in functions
        if one.__code__ == was and one.__code__.co_filename == file
    ]
    # 3. Each must be found, or the change would be without an effect, and count as not noticed.
    # Code with other variables from outside cannot be given to an existing closure.
    if not {was for was, _ in changed} <= {one.__code__ for one, _ in found}:
        return False
    if any(one.__code__.co_freevars != now.co_freevars for one, now in found):
        return False
    for one, now in found:
        one.__code__ = now
    return bool(found)


def _every_function() -> list[FunctionType]:
    """All functions of this process, those too that its garbage collector leaves alone."""
    frozen = gc.get_freeze_count()
    # Frozen objects are in no list of the collector. They are frozen again afterwards.
    gc.unfreeze()
    found = [one for one in gc.get_objects() if isinstance(one, FunctionType)]
    if frozen:
        gc.freeze()
    return found


def _compiled(source: str | bytes, file: str) -> CodeType:
    return compile(source, file, "exec", dont_inherit=True)


def _changed(was: CodeType, now: CodeType) -> list[tuple[CodeType, CodeType]] | None:
    """The functions that differ, as they were and are; None if anything else differs."""
    before, after = dict(_functions(was, "")), dict(_functions(now, ""))
    if before.keys() != after.keys() or _outside(was) != _outside(now):
        return None
    return [(before[name], after[name]) for name in before if before[name] != after[name]]


def _made_by(changed: Iterable[tuple[CodeType, CodeType]]) -> Iterator[tuple[CodeType, CodeType]]:
    """The functions inside these that differ, too."""
    for was, now in changed:
        inside = list(zip(_inside(was), _inside(now), strict=False))
        differs = [(before, after) for before, after in inside if before != after]
        yield from differs
        yield from _made_by(differs)


def _functions(code: CodeType, above: str) -> Iterator[tuple[str, CodeType]]:
    """The outermost functions of a module, with a name of each."""
    for number, one in enumerate(_inside(code)):
        name = f"{above}/{number}.{one.co_name}"
        if one.co_flags & inspect.CO_OPTIMIZED:
            yield name, one
        else:
            yield from _functions(one, name)


def _outside(code: CodeType) -> tuple[object, ...]:
    """What a module and its classes execute themselves."""
    texts = [one for one in code.co_consts if not isinstance(one, CodeType)]
    classes = [one for one in _inside(code) if not one.co_flags & inspect.CO_OPTIMIZED]
    # By their words, since constants of different types may be equal: 1, 1.0 and True.
    own = (code.co_code, code.co_names, *map(repr, texts))
    return (own, *(_outside(one) for one in classes))


def _inside(code: CodeType) -> list[CodeType]:
    return [one for one in code.co_consts if isinstance(one, CodeType)]
