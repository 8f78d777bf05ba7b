# SPDX-License-Identifier: Apache-2.0
"""Stands in for modules that an original imports and that its saving needs not: STUBS names them, with commas."""

import importlib.abc
import importlib.machinery
import os
import sys
import types


class Open(type):
    """Has each attribute, and can be called as a decorator."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything

    def __or__(cls, other):
        return object

    def __ror__(cls, other):
        return object


class Anything(metaclass=Open):
    def __new__(cls, *arguments, **named):
        if cls is Anything and len(arguments) == 1 and callable(arguments[0]) and not named:
            return arguments[0]
        return object.__new__(cls)

    def __init__(self, *arguments, **named):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything

    def __call__(self, *arguments, **named):
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) else Anything()

    def __class_getitem__(cls, item):
        return cls


class Module(types.ModuleType):
    __version__ = "99.0"
    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (Exception,) if name.endswith(("Error", "Exception")) else (Anything,), {"__module__": self.__name__})
        setattr(self, name, made)
        return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names):
        self.names = names

    def find_spec(self, name, _path, _target=None):
        if any(name == n or name.startswith(n + ".") for n in self.names):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Module(spec.name)

    def exec_module(self, _module):
        pass


sys.meta_path.append(Finder([n for n in os.environ.get("STUBS", "").split(",") if n]))
