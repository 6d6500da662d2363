"""The order of the house: who may import whom, what C may hold, what is documented and typed."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, get_origin

import pytest

import ullage
from ullage import reference

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "ullage"
NATIVE = ROOT / "native"

# Modules of types and of plain rules about them: they know each other only.
TYPES = {
    *("blank", "budget", "canonical", "contract", "counting", "errors", "events", "history", "messages"),
    *("report", "shape", "wire"),
}
COMPILED = {path.stem for path in SOURCE.glob("*.pyx")}


# --- imports --------------------------------------------------------------------------------


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    paths = [*SOURCE.rglob("*.py"), *SOURCE.glob("*.pyx")]
    return {module_name(path): path for path in sorted(paths)}


def imported(path: Path, lazily: bool) -> set[str]:
    """The modules of this package that a module imports; with those inside functions if asked for."""
    if path.suffix == ".pyx":
        text = path.read_text(encoding="utf-8")
        names = set(re.findall(r"^from ullage\.(\w+) c?import", text, re.MULTILINE))
        for line in re.findall(r"^from ullage import (.+)$", text, re.MULTILINE):
            names |= {name.strip() for name in line.split(",")}
        return names - {"native"}
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    found = set()
    for node in import_statements(ast.parse(path.read_text(encoding="utf-8")), lazily):
        if node.level == 0:
            continue
        base = [part for part in package[: len(package) - node.level + 1] if part]
        target = ".".join([*base, *(node.module or "").split(".")]).strip(".")
        names = {f"{target}.{alias.name}".strip(".") for alias in node.names}
        found |= {name if name in modules() else target for name in names}
    return found


def import_statements(tree: ast.AST, lazily: bool) -> Iterator[ast.ImportFrom]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        elif lazily or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from import_statements(node, lazily)


def closure(start: set[str]) -> set[str]:
    """All modules that are reached from some, they included."""
    seen, waiting = set(), set(start)
    while waiting:
        name = waiting.pop()
        seen.add(name)
        waiting |= imported(modules()[name], lazily=True) - seen
    return seen


def test_types_know_types_only() -> None:
    assert set(modules()) >= TYPES
    assert closure(TYPES) == TYPES


def test_the_bridge_knows_types_and_the_native_library() -> None:
    assert closure({"_core"}) == closure({"_core"}) & {"_core", *TYPES}
    assert closure({"_build"}) <= {"_build", "_trim", "_core", *TYPES}


def test_counters_and_builder_know_types_and_the_bridge() -> None:
    assert closure({"counters", "builder"}) <= {"counters", "builder", "_build", "_trim", "_core", *TYPES}


def test_formats_know_types_and_the_bridge() -> None:
    formats = {name for name in modules() if name.split(".")[0] == "formats"}
    assert "formats.openai_chat" in formats
    assert closure(formats) <= {*formats, "_core", *TYPES}


def test_nobody_knows_the_command_line() -> None:
    users = {name for name, path in modules().items() if "cli" in imported(path, lazily=True)}
    assert users <= {"cli"}


def test_only_the_command_line_knows_archives() -> None:
    for name, path in modules().items():
        if name.split(".")[0] not in ("archive", "cli"):
            assert not any(used.split(".")[0] == "archive" for used in imported(path, lazily=False)), name


def test_imports_run_in_no_circle() -> None:
    graph = {name: imported(path, lazily=False) for name, path in modules().items() if name}
    while True:
        free = {name for name, used in graph.items() if not (used - {name}) & set(graph)}
        if not free:
            break
        for name in free:
            del graph[name]
    assert set(graph) == set()


def test_the_reference_knows_types_only() -> None:
    assert closure({"reference"}) <= {"reference", *TYPES}
    assert not closure({"reference"}) & COMPILED


WITHOUT_COMPILED = f"""
import sys, types

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.removeprefix("ullage.") in {COMPILED!r}:
            raise ImportError(f"{{name}} is compiled")

sys.meta_path.insert(0, Refuse())
package = types.ModuleType("ullage")  # stands in for the one that imports everything
package.__path__ = [{str(SOURCE)!r}]
sys.modules["ullage"] = package

from ullage import reference
from ullage.budget import ContextTarget
from ullage.messages import GenerationRequest, UserMessage

request = GenerationRequest((UserMessage("u"),))
count = reference.ByteHeuristicCounter().count(ContextTarget("m", "r"), request)
assert count.tokens.total() == 8 + 4 + 32, count
assert reference.json_length([1.5, "x"]) == reference.json_text_length('[1.5, "x"]') == 9
"""


def test_the_reference_works_where_nothing_compiled_can_be_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_COMPILED], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_both_engines_have_the_same_face() -> None:
    for name in reference.__all__:
        compiled, plain = getattr(ullage, name), getattr(reference, name)
        if not isinstance(plain, type):
            continue
        for member, value in vars(plain).items():
            if inspect.isfunction(value) and not member.startswith("_"):
                assert inspect.signature(value) == inspect.signature(getattr(compiled, member))


# --- C ------------------------------------------------------------------------------------------------


def c_files() -> list[Path]:
    return [p for p in sorted(NATIVE.rglob("*.[ch]")) if p.parent.name not in ("tests", "fuzz")]


def code_of(path: Path) -> str:
    """A C file without comments, texts and what is for the preprocessor."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)
    text = re.sub(r'"(\\.|[^"\\\n])*"', '""', text)
    text = re.sub(r"'(\\.|[^'\\\n])+'", "0", text)
    return re.sub(r"^[ \t]*#(\\\n|[^\n])*", "", text, flags=re.MULTILINE)


def at_file_scope(code: str) -> list[str]:
    """The declarations of a C file, what is between braces left out."""
    while True:
        flat = re.sub(r"\{[^{}]*\}", "@", code)
        if flat == code:
            break
        code = flat
    code = re.sub(r"\)\s*@", ");", code)  # a function and its body
    code = code.replace('extern ""', "").replace("@", " @ ")
    return [" ".join(part.split()) for part in code.split(";") if part.strip()]


def is_constant(declaration: str) -> bool:
    """Whether what is declared, if it is a variable at all, never changes."""
    if declaration.startswith(("typedef", "_Static_assert", "static_assert", "struct", "enum", "union")):
        return True
    head = declaration.split("=")[0].split("[")[0]
    if "(" in head and "=" not in declaration:  # a function
        return True
    return "const" in head.rpartition("*")[2] if "*" in head else "const" in head.split()


def test_the_native_library_knows_nothing_of_python() -> None:
    assert len(c_files()) > 10
    for path in c_files():
        text = path.read_text(encoding="utf-8")
        assert "Python.h" not in text, path
        assert not re.search(r"\bPy[A-Z]\w+\(", code_of(path)), path


def test_the_native_library_holds_no_variables() -> None:
    for path in c_files():
        code = code_of(path)
        changing = [text for text in at_file_scope(code) if not is_constant(text)]
        assert changing == [], path
        statics = re.findall(r"^\s+static\b(?!\s+(?:inline|const|_Noreturn))[^;{(]*[;=]", code, re.MULTILINE)
        assert [text for text in statics if "const" not in text] == [], path


@pytest.mark.parametrize(
    ("declaration", "constant"),
    [
        ("static int count = 0", False),
        ("int table[3] = @", False),
        ("static const char *name = 0", False),
        ("static const char *const name = 0", True),
        ("static const unsigned powers[] = @", True),
        ("static const ul_text_kernels scalar = @", True),
        ("unsigned ul_u64_length(uint64_t v)", True),
        ("typedef struct @ ul_trim_task", True),
    ],
)
def test_variables_are_told_from_constants(declaration: str, constant: bool) -> None:
    assert is_constant(declaration) == constant


def test_every_function_of_the_header_is_documented() -> None:
    text = (NATIVE / "include" / "ullage.h").read_text(encoding="utf-8")
    paragraphs = [
        part for part in re.split(r"\n\s*\n", text) if re.search(r"^[a-z_].*\bul_\w+\(", part, re.MULTILINE)
    ]
    assert len(paragraphs) >= 10
    assert [
        part for part in paragraphs if "*/" not in re.split(r"^[a-z_]", part, flags=re.MULTILINE)[0]
    ] == []


def test_every_function_of_the_header_is_there() -> None:
    header = (NATIVE / "include" / "ullage.h").read_text(encoding="utf-8")
    header = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    declared = set(re.findall(r"^[a-z_].*?\b(ul_\w+)\(", header, re.MULTILINE))
    defined = set()
    for path in c_files():
        if path.suffix == ".c":
            defined |= set(
                re.findall(r"^(?!static|typedef|#)[a-z_].*?\b(ul_\w+)\(", code_of(path), re.MULTILINE)
            )
    assert declared <= defined


# --- what is public ---------------------------------------------------------------------------------------


PUBLIC = {name: getattr(ullage, name) for name in ullage.__all__}


def public_functions() -> Iterator[tuple[str, Any]]:
    """Functions, and the methods and properties of classes, that are defined in this package."""
    for name, item in PUBLIC.items():
        if inspect.isfunction(item):
            yield name, item
        elif inspect.isclass(item):
            for member, value in vars(item).items():
                function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
                if inspect.isfunction(function) and (not member.startswith("_") or member == "__init__"):
                    yield f"{name}.{member}", function


def test_every_public_name_is_there_once() -> None:
    assert len(ullage.__all__) == len(set(ullage.__all__))
    assert len(PUBLIC) > 60


def test_every_public_name_is_documented() -> None:
    for name, item in PUBLIC.items():
        if not callable(item) or get_origin(item) is not None or isinstance(item, types.UnionType):
            continue  # a constant or an alias has no text of its own
        text = vars(item).get("__doc__") if inspect.isclass(item) else item.__doc__
        assert len(text or "") > 10, name
        assert not text.startswith(f"{name}("), name  # a signature is no documentation
    for name, function in public_functions():
        assert name.endswith("__init__") or function.__doc__, name


def test_every_public_function_is_typed() -> None:
    for name, function in public_functions():
        if function.__module__ == "typing" or not function.__module__.startswith("ullage"):
            continue  # made by a protocol
        hints = inspect.signature(function)
        missing = [
            parameter.name
            for parameter in hints.parameters.values()
            if parameter.annotation is parameter.empty and parameter.name not in ("self", "cls")
        ]
        assert missing == [], name
        assert hints.return_annotation is not hints.empty, name


@pytest.mark.parametrize("module", sorted(COMPILED))
def test_what_is_compiled_is_typed_in_a_stub(module: str) -> None:
    stub = ast.parse((SOURCE / f"{module}.pyi").read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(stub) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        assert function.returns is not None, function.name
        assert all(a.annotation is not None for a in arguments if a.arg != "self"), function.name
    text = (SOURCE / f"{module}.pyx").read_text(encoding="utf-8")
    defined = set(re.findall(r"^(?:    )?def ([a-z]\w*)\(", text, re.MULTILINE))
    assert defined <= {function.name for function in functions}


def test_the_package_says_that_it_is_typed() -> None:
    assert (SOURCE / "py.typed").is_file()
    assert distribution("ullage").version == ullage.__version__
    metadata = distribution("ullage").metadata
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
