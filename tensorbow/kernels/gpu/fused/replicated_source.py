"""CUDA sources whose kernels run for all replicas: a replica is one or several layers of blocks along z.

Each kernel becomes a device function. A new kernel of its name takes the table of the replicas' memory first,
then the same parameters with the addresses of replica 0; it moves every pointer by the distance of the
replica's region from replica 0's, and calls the function.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from functools import lru_cache

from tensorbow.errors import UnimplementedError
from tensorbow.kernels.gpu.runtime.program import CudaSource

# Texts come first, so that what looks like a comment in one stays.
_TEXT_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_KERNEL = re.compile(
    r'(?:extern\s+"C"\s+)?__global__\s+(?P<before>__launch_bounds__\s*\([^()]*\)\s*)?void\s+'
    r"(?P<after>__launch_bounds__\s*\([^()]*\)\s*)?(?P<name>\w+)\s*\((?P<parameters>[^()]*)\)"
)
# A declaration that ends before any parenthesis: of a variable, not of a function.
_VARIABLE = re.compile(
    r"(?P<before>(?:\b(?:static|inline|const|constexpr)\s+)*)__(?:device|managed)__\b(?P<after>[^(){};=]*)[;={]"
)
_CONSTANT = re.compile(r"\b(?:const|constexpr|__constant__|operator)\b")
_DEPTH = re.compile(r"\b(?:blockIdx|gridDim)\b(?!\s*\.\s*[xy]\b)")

Structs = tuple[tuple[int, int], ...]
"""Numbers of parameters that are structs. With them, for a table of pointers that lies in memory, the bytes
from one replica's to the next, and 0 for a struct that is the same for all.
"""

# moves: bytes from replica 0's regions, [replicas, regions]. region: of each pointer, by parameter.
_REPLICAS = """
template <int N> struct TbReplicas { const long long* moves; int regions; int depth; short region[N]; };
template <class T> static __device__ __forceinline__ T* tb_moved(T* pointer, long long distance) {
    return pointer == nullptr ? pointer : (T*)((char*)pointer + distance);
}
"""
# A kernel that uses the grid's depth sees that of one replica.
_LAYERS = """
static __device__ __forceinline__ uint3 tb_block_of_replica() {
    return make_uint3(blockIdx.x, blockIdx.y, blockIdx.z % $DEPTHu);
}
static __device__ __forceinline__ uint3 tb_grid_of_replica() {
    return make_uint3(gridDim.x, gridDim.y, $DEPTHu);
}
#undef blockIdx
#undef gridDim
#define blockIdx tb_block_of_replica()
#define gridDim tb_grid_of_replica()
"""
_LAYER = """
static __device__ __forceinline__ unsigned tb_layer() { return blockIdx.z; }
"""


@lru_cache(maxsize=1024)
def replicated(source: CudaSource, depth: int, function: str = "", structs: Structs = ()) -> CudaSource:
    """The source with its kernels for all replicas. depth: blocks of one replica along z.

    structs: those among the parameters of a function, which then are read where they are, and not copied by
    every thread. Only that function is a kernel of the result then.

    Raises UnimplementedError for kernels that are not declared plainly, and for variables of the program: all
    replicas would have the same ones.
    """
    text = _TEXT_OR_COMMENT.sub(_blanked, source.text)
    for variable in _VARIABLE.finditer(text):
        if not _CONSTANT.search(variable["before"] + variable["after"]):
            raise UnimplementedError(
                f"CUDA source {source.name}: expected no __device__ variables, which replicas would share, "
                f"got '{' '.join(variable.group()[:-1].split())}'; use scratch arrays"
            )
    kernels = list(_KERNEL.finditer(text))
    if len(kernels) != len(re.findall(r"\b__global__\b", text)):
        raise UnimplementedError(
            f"CUDA source {source.name}: expected kernels declared as "
            "'extern \"C\" __global__ void name(parameters)'; others run for one replica at a time only"
        )
    layers = _LAYERS.replace("$DEPTH", str(depth)) if _DEPTH.search(text) else ""
    numbers = {number for number, _ in structs}
    body = _KERNEL.sub(
        lambda kernel: _as_function(kernel, numbers if kernel["name"] == function else ()), text
    )
    wrapped = [kernel for kernel in kernels if not structs or kernel["name"] == function]
    wrappers = "\n".join(_wrapper(kernel, dict(structs)) for kernel in wrapped)
    return CudaSource(source.name, f"{_LAYER}{layers}{body}\n{_REPLICAS}{wrappers}\n")


def _blanked(found: re.Match[str]) -> str:
    """Keeps texts, and the line breaks of comments."""
    text = found.group()
    return text if text.startswith('"') else " " + "\n" * text.count("\n")


def _as_function(kernel: re.Match[str], structs: Container[int]) -> str:
    parameters = parameters_in(kernel["parameters"])
    for number in (number for number in range(len(parameters)) if number in structs):
        name = name_of(parameters[number])
        parameters[number] = f"const {_type_of(parameters[number])}& {name}"
    listed = ", ".join(parameters)
    return f"static __device__ __forceinline__ void tb_one_{kernel['name']}({listed})"


def _wrapper(kernel: re.Match[str], structs: Mapping[int, int]) -> str:
    parameters = parameters_in(kernel["parameters"])
    names = [name_of(parameter) for parameter in parameters]
    taken: list[str] = []
    given: list[str] = []
    moves: list[str] = []
    for number, (parameter, name) in enumerate(zip(parameters, names, strict=True)):
        if structs.get(number) == 0:
            taken.append(f"const __grid_constant__ {_type_of(parameter)} {name}")
            given.append(name)
            continue
        if number in structs:
            taken.append(f"const char* {name}")
            kind, step = _type_of(parameter), structs[number]
            given.append(f"*reinterpret_cast<const {kind}*>({name} + tb_replica * {step}LL)")
            continue
        taken.append(_assignable(parameter))
        given.append(name)
        if "*" in parameter:
            moves.append(
                f"    {name} = tb_moved({name}, __ldg(tb_moves + tb_replicas.region[{len(moves)}]));"
            )
    bounds = kernel["before"] or kernel["after"] or ""
    listed = ", ".join([f"TbReplicas<{max(len(moves), 1)}> tb_replicas", *taken])
    return "\n".join(
        [
            f'extern "C" __global__ void {bounds}{kernel["name"]}({listed}) {{',
            "    const long long tb_replica = tb_layer() / tb_replicas.depth;",
            "    const long long* tb_moves = tb_replicas.moves + tb_replica * tb_replicas.regions;",
            *moves,
            f"    tb_one_{kernel['name']}({', '.join(given)});",
            "}",
        ]
    )


@lru_cache(maxsize=1024)
def pointers_of(name: str, text: str, function: str) -> int:
    """Number of pointers among the parameters of a kernel. name: of the source."""
    for kernel in _KERNEL.finditer(_TEXT_OR_COMMENT.sub(_blanked, text)):
        if kernel["name"] == function:
            return sum("*" in parameter for parameter in parameters_in(kernel["parameters"]))
    raise UnimplementedError(f"CUDA source {name}: expected 'extern \"C\" __global__ void {function}(...)'")


def _type_of(parameter: str) -> str:
    """The type of a parameter passed by value, without `const`."""
    before = parameter[: parameter.rindex(name_of(parameter))]
    return re.sub(r"\bconst\b", "", before).strip()


def _assignable(parameter: str) -> str:
    """A pointer whose own value may change: without `const` behind the `*`."""
    before, star, after = parameter.rpartition("*")
    return before + star + re.sub(r"\bconst\b", "", after) if star else parameter


def parameters_in(listed: str) -> list[str]:
    """The parameters of a list; commas within template arguments do not count."""
    parts, depth = [""], 0
    for letter in listed:
        depth += (letter == "<") - (letter == ">")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    stripped = [part.strip() for part in parts]
    return [part for part in stripped if part and part != "void"]


def name_of(parameter: str) -> str:
    """The name that a parameter declares."""
    return str(re.findall(r"\w+", parameter)[-1])
