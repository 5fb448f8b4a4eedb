"""Calls functions when modules have been loaded, in whatever way they are looked up and loaded.

One finder stays on sys.meta_path for the life of the process. Looking a module up
(`importlib.util.find_spec`) loads nothing and changes nothing: the spec that it gets has a loader that tells
when it has executed the module, now, later (`importlib.util.LazyLoader`), several times or never. Finders
that others put in front, as comet_ml does, ask Python's own, so that one is watched too.
"""

import copy
import functools
import importlib.abc
import importlib.machinery
import sys


class ImportWatch(importlib.abc.MetaPathFinder):
    """Finds the watched modules as Python would, and watches their loaders."""

    def __init__(self):
        self.watched = {}  # name -> functions that get the execution of a module to do
        self.checks = []  # called with the name at each lookup of a module that is not loaded

    def install(self):
        if any(finder is self for finder in sys.meta_path):
            return
        sys.meta_path.insert(0, self)
        path_finder = importlib.machinery.PathFinder
        find = path_finder.find_spec

        @functools.wraps(find)
        def find_spec(_class, name, path=None, target=None):
            return self.watch(name, find(name, path, target))

        path_finder.find_spec = classmethod(find_spec)

    def around(self, name, function):
        """Have `function(run, module)` called in place of each `run(module)` that executes this module."""
        self.watched.setdefault(name, []).append(function)

    def after(self, name, function, problem):
        """Have `function(module)` called after each execution of this module, or now if it is loaded.

        What it raises goes to `problem` and never to the script.
        """

        def call(module):
            try:
                function(module)
            except Exception as error:
                problem(f"{name}: {error!r}")

        def run_and_call(run, module):
            run(module)
            call(module)

        self.around(name, run_and_call)
        if name in sys.modules:
            call(sys.modules[name])

    def find_spec(self, name, path=None, target=None):
        """Stand in for the finders behind this one, for the watched modules."""
        for check in self.checks:
            check(name)
        if name not in self.watched:
            return None
        return self.watch(name, self.ask_others(name, path, target))

    def watch(self, name, spec):
        """Return the spec with its loader watched, if the module is."""
        loader = getattr(spec, "loader", None) if name in self.watched else None
        if hasattr(loader, "exec_module") and not hasattr(loader, "_brimful_watched"):
            spec.loader = self.watching(loader, name)
        return spec

    def ask_others(self, name, path, target):
        """Return what the finders behind this one find: those before it have been asked already."""
        finders = list(sys.meta_path)
        places = [place for place, finder in enumerate(finders) if finder is self]
        # Somebody who keeps this finder in a finder of his own has taken it from the list.
        behind = finders[places[0] + 1 :] if places else [importlib.machinery.PathFinder]
        for finder in behind:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                return spec
        return None

    def watching(self, loader, name):
        """Return a loader like this one that also calls the functions."""
        run = loader.exec_module

        def exec_module(module):
            execute = run
            for function in self.watched.get(name, ()):
                execute = _bind(function, execute)
            return execute(module)

        try:
            # A copy: a loader such as zipimporter is that of other modules too. Not a class of ours: some
            # look at a loader's class.
            watching = copy.copy(loader)
            if watching is loader:  # a class, such as that of frozen modules
                return _Delegate(loader, exec_module)
            watching.exec_module = exec_module
            watching._brimful_watched = True
        except Exception:
            return _Delegate(loader, exec_module)
        return watching


def _bind(function, run):
    return lambda module: function(run, module)


class _Delegate(importlib.abc.Loader):
    """A loader that takes no attributes, with its execution watched."""

    _brimful_watched = True

    def __init__(self, loader, exec_module):
        self._loader = loader
        self.exec_module = exec_module

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        """Replaced on each instance."""

    def __getattr__(self, name):
        if name == "_loader":  # while it is being copied or unpickled
            raise AttributeError(name)
        return getattr(self._loader, name)


IMPORTS = ImportWatch()
