"""CUDA sources whose kernels run for all replicas: a replica is one or several layers of blocks along z.

Each kernel becomes a device function. A new kernel of its name takes the table of the replicas' memory first,
then the same parameters with the addresses of replica 0; it moves every pointer by the distance of the
replica's region from replica 0's, and calls the function.
"""

from __future__ import annotations

import re
from functools import lru_cache

from tensorbow.errors import UnimplementedError
from tensorbow.kernels.gpu.runtime.program import CudaSource

# Texts come first, so that what looks like a comment in one stays.
_TEXT_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_KERNEL = re.compile(
    r'(?:extern\s+"C"\s+)?__global__\s+(?P<before>__launch_bounds__\s*\([^()]*\)\s*)?void\s+'
    r"(?P<after>__launch_bounds__\s*\([^()]*\)\s*)?(?P<name>\w+)\s*\((?P<parameters>[^()]*)\)"
)
_DEPTH = re.compile(r"\b(?:blockIdx|gridDim)\b(?!\s*\.\s*[xy]\b)")
_TABLE = re.compile(r"\bTbPointers\s*<")

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
def replicated(source: CudaSource, depth: int) -> CudaSource:
    """The source with its kernels for all replicas. depth: blocks of one replica along z.

    Raises UnimplementedError for kernels that are not declared plainly.
    """
    text = _TEXT_OR_COMMENT.sub(_blanked, source.text)
    kernels = list(_KERNEL.finditer(text))
    if len(kernels) != len(re.findall(r"\b__global__\b", text)):
        raise UnimplementedError(
            f"CUDA source {source.name}: expected kernels declared as "
            "'extern \"C\" __global__ void name(parameters)'; others run for one replica at a time only"
        )
    body = _KERNEL.sub(_as_function, text)
    layers = _LAYERS.replace("$DEPTH", str(depth)) if _DEPTH.search(text) else ""
    wrappers = "\n".join(_wrapper(kernel) for kernel in kernels)
    return CudaSource(source.name, f"{_LAYER}{layers}{body}\n{_REPLICAS}{wrappers}\n")


def _blanked(found: re.Match[str]) -> str:
    """Keeps texts, and the line breaks of comments."""
    text = found.group()
    return text if text.startswith('"') else " " + "\n" * text.count("\n")


def _as_function(kernel: re.Match[str]) -> str:
    return f"static __device__ __forceinline__ void tb_one_{kernel['name']}({kernel['parameters']})"


def _wrapper(kernel: re.Match[str]) -> str:
    parameters = parameters_in(kernel["parameters"])
    moves, pointers = [], 0
    for parameter in parameters:
        name, size = name_of(parameter), _pointers_in(parameter)
        if _TABLE.search(parameter):
            moves.append(
                f"    for (int n = 0; n < {size}; ++n) {name}.at[n] =\n"
                f"        tb_moved({name}.at[n], tb_moves[tb_replicas.region[{pointers} + n]]);"
            )
        elif size:
            moves.append(f"    {name} = tb_moved({name}, tb_moves[tb_replicas.region[{pointers}]]);")
        pointers += size
    bounds = kernel["before"] or kernel["after"] or ""
    listed = ", ".join([f"TbReplicas<{max(pointers, 1)}> tb_replicas", *map(_assignable, parameters)])
    called = ", ".join(name_of(parameter) for parameter in parameters)
    return "\n".join(
        [
            f'extern "C" __global__ void {bounds}{kernel["name"]}({listed}) {{',
            "    const long long* tb_moves =",
            "        tb_replicas.moves + (long long)(tb_layer() / tb_replicas.depth) * tb_replicas.regions;",
            *moves,
            f"    tb_one_{kernel['name']}({called});",
            "}",
        ]
    )


@lru_cache(maxsize=1024)
def pointers_of(name: str, text: str, function: str) -> int:
    """Number of pointers among the parameters of a kernel, those in tables included. name: of the source."""
    for kernel in _KERNEL.finditer(_TEXT_OR_COMMENT.sub(_blanked, text)):
        if kernel["name"] == function:
            return sum(_pointers_in(parameter) for parameter in parameters_in(kernel["parameters"]))
    raise UnimplementedError(f"CUDA source {name}: expected 'extern \"C\" __global__ void {function}(...)'")


def _pointers_in(parameter: str) -> int:
    if _TABLE.search(parameter):
        return int(parameter[parameter.rindex(",") + 1 : parameter.rindex(">")])
    return int("*" in parameter)


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
