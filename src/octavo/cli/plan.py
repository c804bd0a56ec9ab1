"""octavo plan: what a model takes and how many users it serves, before anything is loaded.

Reads config.json or the header of a GGUF file, nothing else.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from octavo.config.cli_args import Parser, add_options, build
from octavo.config.engine import CacheConfig, ModelConfig, SchedulerConfig
from octavo.errors import ConfigError
from octavo.foundation import env
from octavo.foundation.machine import memory_limits
from octavo.foundation.quantities import format_bytes, format_count, parse_count
from octavo.sizing.capacity import Capacity, Device, Wishes, fewest_devices, plan_capacity
from octavo.sizing.devices import GPUS, gpu_bytes
from octavo.sizing.model_shape import ModelShape
from octavo.sizing.source import find_shape
from octavo.sizing.storage import storage_named

GPU_UTILIZATION = 0.9  # a whole card is ours; a machine's memory is not
# The options of an engine that change the sum.
_OPTIONS = (
    (ModelConfig, ("revision", "quantization", "max_model_len")),
    (CacheConfig, ("block_size", "kv_cache_dtype", "gpu_memory_utilization")),
    (SchedulerConfig, ("max_num_batched_tokens",)),
)


def run(arguments: Sequence[str]) -> int:
    """Print the plan; 1 when not even one request of the longest context fits."""
    parsed = _parser().parse_args(arguments)
    storage = None if parsed.weight_type is None else storage_named(parsed.weight_type.lower())
    device = _device(parsed)
    wishes = _wishes(parsed)
    quantization = build(ModelConfig, parsed).quantization
    if storage is not None and quantization != "auto":
        raise ConfigError("give --weight-type or --quantization, not both")
    shape = find_shape(
        parsed.model, revision=parsed.revision, storage=storage, quantization=quantization
    )
    capacity = plan_capacity(shape, device, wishes)
    if parsed.json:
        print(json.dumps(_record(shape, device, wishes, capacity), indent=2))
    else:
        print("\n".join(_lines(shape, device, wishes, capacity, _place(parsed))))
    return 0 if capacity.fits else 1


def _parser() -> Parser:
    parser = Parser(
        prog="octavo plan",
        description="Tell what a model takes and how many users fit, from its header alone.",
    )
    parser.add_argument(
        "model", help="config.json, a folder that has one, .gguf file, hub id or short name."
    )
    parser.add_argument(
        "--gpu",
        metavar="NAME",
        help=f"One of {', '.join(GPUS)}. Default: the memory of this machine. A GPU is used to "
        f"{GPU_UTILIZATION:g} unless --gpu-memory-utilization says otherwise.",
    )
    parser.add_argument("--memory", metavar="SIZE", help="Memory of another device, such as 24G.")
    parser.add_argument(
        "--tensor-parallel-size",
        "--tp",
        type=int,
        default=1,
        metavar="N",
        help="Equal devices that share the model [1].",
    )
    parser.add_argument(
        "--weight-type", metavar="TYPE", help="As if all matrices were of this type, such as q4_k."
    )
    for config, names in _OPTIONS:
        others = (field.name for field in dataclasses.fields(config) if field.name not in names)
        add_options(parser, config, skip=others)
    parser.add_argument("--json", action="store_true", help="As one JSON object; sizes in bytes.")
    return parser


def _device(parsed: argparse.Namespace) -> Device:
    if parsed.gpu is not None and parsed.memory is not None:
        raise ConfigError("give --gpu or --memory, not both")
    if parsed.tensor_parallel_size < 1:
        raise ConfigError(
            f"--tensor-parallel-size must be at least 1, got {parsed.tensor_parallel_size}"
        )
    utilization: dict[str, float] = {}
    if parsed.gpu is not None:
        memory = gpu_bytes(parsed.gpu)
        if env.flag_value("--gpu-memory-utilization") is None:
            utilization = {"gpu_memory_utilization": GPU_UTILIZATION}
    elif parsed.memory is not None:
        memory = parse_count(parsed.memory, "--memory")
    else:
        memory = memory_limits().total
    if memory < 1:
        raise ConfigError(f"--memory must be at least 1 byte, got {parsed.memory!r}")
    given = {} if parsed.gpu_memory_utilization is not None else utilization
    return Device(
        memory_bytes=memory,
        utilization=build(CacheConfig, parsed, **given).gpu_memory_utilization,
        tensor_parallel_size=parsed.tensor_parallel_size,
    )


def _wishes(parsed: argparse.Namespace) -> Wishes:
    model, cache = build(ModelConfig, parsed), build(CacheConfig, parsed)
    if model.max_model_len == 0:
        raise ConfigError("--max-model-len must be at least 1 or auto, got 0")
    return Wishes(
        max_model_len=model.max_model_len,
        kv_cache_dtype=cache.kv_cache_dtype,
        block_size=cache.block_size,
        max_num_batched_tokens=build(SchedulerConfig, parsed).max_num_batched_tokens,
    )


def _place(parsed: argparse.Namespace) -> str:
    """The device in words."""
    size = parsed.tensor_parallel_size
    name = parsed.gpu or (f"{parsed.memory} device" if parsed.memory else "this machine")
    return name if size == 1 else f"{size} x {name}"


def _record(
    shape: ModelShape, device: Device, wishes: Wishes, capacity: Capacity
) -> dict[str, Any]:
    """The plan as plain data. Sizes are in bytes, those below `device` of one device."""
    return {
        "model": shape.name,
        "architecture": shape.architecture,
        "is_served": shape.is_served,
        "parameters": {
            "total": shape.parameters.total,
            **dataclasses.asdict(shape.parameters),
        },
        "weights": {"type": shape.storage, "bytes": shape.weight_bytes},
        "kv": {
            "type": wishes.kv_type.name.lower(),
            "bytes_per_token": shape.kv_bytes_per_token(wishes.kv_type),
            "layers": len(shape.entries),
            "layers_with_window": sum(window > 0 for window in shape.windows),
            "window": max(shape.windows, default=0),
            "is_latent": any(entry.is_latent for entry in shape.entries),
            "state_bytes_per_request": shape.state_bytes,
        },
        "device": {
            "count": device.tensor_parallel_size,
            "memory_bytes": device.memory_bytes,
            "usable_bytes": capacity.usable_bytes,
            "weight_bytes": capacity.weight_bytes,
            "workspace_bytes": capacity.workspace_bytes,
            "kv_bytes": capacity.kv_bytes,
            "kv_bytes_per_token": capacity.kv_bytes_per_token,
        },
        "max_model_len": capacity.max_model_len,
        "tokens": capacity.num_tokens,
        "users": {str(context): users for context, users in capacity.users.items()},
        "fits": capacity.fits,
        "fewest_devices": None if capacity.fits else fewest_devices(shape, device, wishes),
    }


def _lines(
    shape: ModelShape, device: Device, wishes: Wishes, capacity: Capacity, place: str
) -> list[str]:
    """The plan for people."""
    share = "" if device.tensor_parallel_size == 1 else " on each device"
    lines = [
        f"{shape.name}: {shape.architecture}, {format_count(shape.parameters.total)} parameters, "
        f"{format_bytes(shape.weight_bytes)} as {shape.storage}",
        f"KV per token: {_kv_words(shape, wishes, capacity)}",
        *_state_words(shape, capacity),
        f"memory{share}: {format_bytes(capacity.usable_bytes)} usable "
        f"({device.utilization:g} of {format_bytes(device.memory_bytes)}, {place}) - weights "
        f"{format_bytes(capacity.weight_bytes)} - workspace about "
        f"{format_bytes(capacity.workspace_bytes)} = {format_bytes(capacity.kv_bytes)} for KV",
        *_fitting(shape, device, wishes, capacity),
    ]
    if not shape.is_served:
        lines.append(f"note: Octavo does not serve {shape.architecture} in this form yet")
    return lines


def _kv_words(shape: ModelShape, wishes: Wishes, capacity: Capacity) -> str:
    if shape.keeps_nothing:
        return "none: an encoder keeps nothing between steps"
    if not shape.entries:
        return "none: all layers carry a state"
    entry, count = shape.entries[0], len(shape.entries)
    what = (
        f"2 x a latent vector of {entry.head_dim}"
        if entry.is_latent
        else f"2 x {entry.num_heads} KV heads x {entry.head_dim}"
    )
    each = shape.kv_bytes_per_token(wishes.kv_type)
    words = f"{count} layers x {what} in {wishes.kv_type.name.lower()} = {format_bytes(each)}"
    if capacity.kv_bytes_per_token != each:
        words += f", {format_bytes(capacity.kv_bytes_per_token)} of it on each device"
    windows = [window for window in shape.windows if window]
    if windows:
        words += f"; {len(windows)} of the layers keep the last {max(windows)} tokens alone"
    return words


def _state_words(shape: ModelShape, capacity: Capacity) -> list[str]:
    """What a request keeps however long it is."""
    if not shape.state_bytes or capacity.kv is None:
        return []
    group = capacity.kv.state_group
    assert group is not None, "a state without a group"
    count = capacity.kv.groups[group].num_state_blocks
    blocks = "1 block" if count == 1 else f"{count} blocks"
    return [
        f"state per request: {format_bytes(shape.state_bytes)} in float32, {blocks} of the pool"
    ]


def _fitting(shape: ModelShape, device: Device, wishes: Wishes, capacity: Capacity) -> list[str]:
    """Tokens and users, or what would help."""
    if capacity.fits:
        if capacity.kv is None:
            return ["fits"]
        tokens = capacity.num_tokens
        held = "any number of tokens" if tokens is None else f"{format_count(tokens)} tokens"
        users = [
            f"  {format_count(number):>9} at once of {format_count(context)} tokens"
            for context, number in capacity.users.items()
        ]
        return [f"KV holds {held} of one request; requests that fit:", *users]
    lines = [
        f"does not fit: a request of {format_count(capacity.max_model_len)} tokens finds no room"
    ]
    tokens = capacity.num_tokens
    if capacity.kv_bytes > 0 and tokens:
        lines.append(f"  --max-model-len {tokens} would fit")
    fewest = fewest_devices(shape, device, wishes)
    if fewest is not None:
        lines.append(f"  --tensor-parallel-size {fewest} would fit")
    return lines
