"""Names for what compiled code allocates: those of Inductor's kernels.

Inside compiled code no module is at work. Inductor writes a Python function for each graph, which allocates a
buffer and then calls the kernel that fills it. That function is compiled again, with a note of the kernel's
name in front of each of these lines. What it computes and allocates stays the same.
"""

import ast
import functools
import inspect
import threading

from brimful_common import guarded
from brimful_imports import IMPORTS

# What the function calls to note a name.
NOTE = "_brimful_kernel"
ALLOCATES = ("empty_strided_cuda", "empty_strided")


class CompiledKernels:
    """A part of the rehearsal."""

    def watch_inductor(self):
        IMPORTS.after("torch._inductor.codecache", self.watch_generated_code, self.problem)

    def watch_generated_code(self, module):
        cache = module.PyCodeCache
        load = cache.load_by_key_path.__func__

        @functools.wraps(load)
        def loading(*arguments, **named):
            loaded = load(*arguments, **named)
            self.name_kernels(loaded)
            return loaded

        cache.load_by_key_path = classmethod(loading)

    @guarded
    def name_kernels(self, module):
        """Have the functions of a generated module note which kernel they are at."""
        functions = {} if hasattr(module, NOTE) else generated_functions(module)
        if not functions:
            return
        with open(module.__file__, encoding="utf-8") as file:
            tree = ast.parse(file.read())
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and (node.name, node.lineno) in functions:
                note_kernels(node.body)
        codes = codes_of(compile(ast.fix_missing_locations(tree), module.__file__, "exec"))
        setattr(module, NOTE, self.at_kernel)
        for place, function in functions.items():
            code = codes.get(place)
            if code is not None and code.co_freevars == function.__code__.co_freevars:
                function.__code__ = code

    @guarded
    def at_kernel(self, name):
        """The name of the kernel that is next, or nothing at the end of the function."""
        in_main = threading.get_ident() == self.main_thread
        # The backward pass has threads of its own, one for each device.
        if self.finished or not (in_main or self.phase == "backward"):
            return
        outside = self.stack[-1] if self.stack else ""
        self.mark("module", f"{name} (compiled)" if name else outside)


def generated_functions(module):
    """Return the functions that run a graph or a part of one, by name and first line."""
    members = list(vars(module).values())
    members += [member for kind in members if inspect.isclass(kind) for member in vars(kind).values()]
    found = {}
    for member in members:
        if inspect.isfunction(member) and member.__globals__ is vars(module):
            name = member.__name__
            if name == "call" or name.startswith("partition_"):
                found[name, member.__code__.co_firstlineno] = member
    return found


def codes_of(code):
    """Return all code objects inside, by name and first line."""
    found = {}
    for constant in code.co_consts:
        if inspect.iscode(constant):
            found[constant.co_name, constant.co_firstlineno] = constant
            found.update(codes_of(constant))
    return found


def note_kernels(body):
    """Put a note in front of each line that allocates or calls a kernel, where the name changes."""
    noted = None
    lines = list(body)
    body.clear()
    for number, line in enumerate(lines):
        for inner in ("body", "orelse", "finalbody"):
            if isinstance(getattr(line, inner, None), list):
                note_kernels(getattr(line, inner))
        name = "" if isinstance(line, ast.Return) else kernel_of(line) or filled_by(lines, number)
        if name is not None and name != noted:
            call = ast.Call(ast.Name(NOTE, ast.Load()), [ast.Constant(name)], [])
            body.append(ast.copy_location(ast.Expr(call), line))
            noted = name
        body.append(line)


def filled_by(lines, number):
    """Return the first kernel that is given the buffer which a line allocates."""
    line = lines[number]
    call = called(line)
    if not isinstance(line, ast.Assign) or call is None or call.split(".")[-1] not in ALLOCATES:
        return None
    buffers = {target.id for target in line.targets if isinstance(target, ast.Name)}
    for later in lines[number + 1 :]:
        kernel = kernel_of(later)
        if kernel and any(isinstance(node, ast.Name) and node.id in buffers for node in ast.walk(later)):
            return kernel
    return None


def kernel_of(line):
    """Return the kernel that a line calls, as Inductor names it."""
    name = called(line)
    if name is None:
        return None
    if name.endswith(".run"):
        return name[: -len(".run")]
    if name.startswith("extern_kernels."):
        return name
    if name.startswith("torch.ops."):
        return name[len("torch.ops.") :].removesuffix(".default")
    return None


def called(line):
    """Return the dotted name of what a line calls."""
    call = line.value if isinstance(line, (ast.Expr, ast.Assign)) else None
    if not isinstance(call, ast.Call):
        return None
    parts = []
    function = call.func
    while isinstance(function, ast.Attribute):
        parts.append(function.attr)
        function = function.value
    if not isinstance(function, ast.Name):
        return None
    return ".".join([function.id, *reversed(parts)])
