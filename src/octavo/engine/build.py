"""Build: EngineConfig -> the parts of a running engine, joined.

Owns the order of loading: the checkpoint is understood first, then the tokenizer is made and the
rest is imported in threads of their own while the executor reads the weights. Does not know who
will drive the engine.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from octavo.config.engine import EngineConfig, ModelConfig
from octavo.config.json_option import generation_override
from octavo.config.kv_events import parse_kv_events
from octavo.config.model_facts import ModelFacts
from octavo.config.without_effect import without_effect, without_idle_swap
from octavo.contracts.kv_plan import MemoryPlan
from octavo.contracts.progress import ReportProgress
from octavo.contracts.tracing import Tracer
from octavo.engine.grammars import Grammars
from octavo.engine.model_kind import config_for, with_kind, with_processors
from octavo.engine.pooler import Pooler
from octavo.engine.reading import open_named, read_model
from octavo.engine.tracing import check_tracing, open_tracer
from octavo.errors import ConfigError, InvalidRequestError
from octavo.executor.base import Executor
from octavo.executor.inline import InlineExecutor
from octavo.foundation.clock import Clock
from octavo.foundation.garbage import without_collections
from octavo.foundation.registry import Registry
from octavo.logits_processors.loading import load_classes
from octavo.sampling_params import SamplingParams
from octavo.text.tokenizer import Tokenizer
from octavo.weights.checkpoint import Checkpoint
from octavo.weights.progress import OnProgress, PullProgress

if TYPE_CHECKING:
    from octavo.engine.core import EngineCore
    from octavo.engine.intake import Intake

logger = logging.getLogger(__name__)

# Those that only some engines have, and those that are imported while weights are packed.
PARTS: Registry[Any] = Registry(
    "part of an engine",
    {
        "core": "octavo.engine.core:EngineCore",
        "intake": "octavo.engine.intake:Intake",
        "limits": "octavo.engine.intake:IntakeLimits",
        "kv events": "octavo.engine.kv_events:open_publisher",
        "tokenizer": "octavo.text.tokenizer_folder:tokenizer_from_folder",
    },
)
# Names in generation_config.json that mean a field of SamplingParams by another name.
RENAMED = {"max_new_tokens": "max_tokens"}
NO_GENERATION_CONFIG = ("octavo", "vllm")  # values of the option that mean "none"


class DescribedModel(Protocol):
    """The part of a checkpoint that says what the model is."""

    @property
    def name(self) -> str: ...

    @property
    def facts(self) -> ModelFacts: ...

    @property
    def chat_template(self) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A loaded engine, ready for whoever drives it."""

    name: str  # of the model, for people
    config: EngineConfig
    facts: ModelFacts
    tokenizer: Tokenizer
    chat_template: str | None  # its source
    core: EngineCore
    intake: Intake
    grammars: Grammars
    tracer: Tracer | None  # takes every request that ends
    default_sampling: Mapping[str, Any]  # SamplingParams fields that the model asks for

    @property
    def memory_plan(self) -> MemoryPlan:
        """How memory was divided."""
        return self.core.memory_plan

    @property
    def hardware(self) -> str:
        """Where the model runs and in which types, in a few words."""
        return self.core.describe()

    @property
    def max_model_len(self) -> int:
        """Longest sequence, prompt and answer together."""
        return self.core.memory_plan.max_model_len


def build_engine(config: EngineConfig, clock: Clock, report: ReportProgress) -> Engine:
    """Find the model, load it, start the executor.

    Raises ModelFileError, DownloadError, DoesNotFitError or ConfigError.
    """
    with without_collections():
        return _build(config, clock, report)


def _build(config: EngineConfig, clock: Clock, report: ReportProgress) -> Engine:
    model = config.model
    overridden_sampling(model)  # a wrong value ends the start before the model is looked for
    load_classes(model.logits_processors)
    check_tracing(config.observability)
    checkpoint, model = read_model(model, _download_reporter(report))
    checkpoint = with_kind(checkpoint, model)
    config = _config_for(replace(config, model=model), checkpoint.facts)
    with ThreadPoolExecutor(2, thread_name_prefix="octavo-loading") as helper:
        tokenizer = helper.submit(_load_tokenizer, model, checkpoint)
        for part in ("core", "intake"):
            helper.submit(PARTS.load, part)
        executor = InlineExecutor(config, checkpoint)
        core = start_core(config, executor, clock, report)
        try:
            return assemble(config, core, checkpoint, tokenizer.result(), clock)
        except BaseException:
            core.stop()
            raise


def _config_for(asked: EngineConfig, facts: ModelFacts) -> EngineConfig:
    """The configuration that goes with the model; what has no effect in it is told."""
    used = with_processors(config_for(without_idle_swap(asked), facts), facts)
    asked_len = asked.model.max_model_len or 0
    for told in without_effect(asked, used, asked_len if asked_len > 0 else facts.max_position):
        logger.warning("%s", told)
    return used


def build_frozen(build: Callable[[ReportProgress], Engine], report: ReportProgress) -> Engine:
    """Build, then take everything that lives now out of the garbage collector's sight.

    What a loaded engine consists of stays until the end; a full collection over it would stop all
    requests for tens of milliseconds. Nor is there one here: what it would find, 0.2 MB of classes
    that were replaced by their decorators, is not worth them.
    """
    engine = build(report)
    gc.freeze()
    report("ready", 1.0)
    return engine


def start_core(
    config: EngineConfig, executor: Executor, clock: Clock, report: ReportProgress
) -> EngineCore:
    """A core on a started executor; the executor is stopped again if that fails."""
    publisher = None
    try:
        if config.cache.kv_events_config is not None:
            publisher = PARTS.load("kv events")(parse_kv_events(config.cache.kv_events_config))
        plan = executor.start(report)
        core: EngineCore = PARTS.load("core").around(
            config.scheduler, config.cache, executor, plan, clock, publisher
        )
        return core
    except BaseException:
        executor.stop()
        if publisher is not None:
            publisher.close()
        raise


def assemble(
    config: EngineConfig,
    core: EngineCore,
    checkpoint: DescribedModel,
    tokenizer: Tokenizer,
    clock: Clock,
) -> Engine:
    """The engine around a core that has been started."""
    facts = checkpoint.facts
    eos = [*facts.eos_token_ids, tokenizer.eos_token_id]
    limits = PARTS.load("limits")(
        vocab_size=facts.vocab_size,
        max_model_len=core.memory_plan.max_model_len,
        kv_plan=core.memory_plan.kv,
        scheduler=config.scheduler,
        max_logprobs=config.model.max_logprobs,
        eos_token_ids=tuple(dict.fromkeys(id_ for id_ in eos if id_ is not None)),
        num_segments=facts.num_segments,
        pooler=Pooler.of(facts, cuts_prompts=config.scheduler.enable_chunked_prefill),
        logits_processors=load_classes(config.model.logits_processors),
    )
    grammars = Grammars(tokenizer, facts.vocab_size, limits.eos_token_ids)
    core.use_grammars(grammars)
    tracer = open_tracer(config.observability, checkpoint.name)
    if config.observability.collect_detailed_traces:
        core.collect_totals()
    return Engine(
        name=checkpoint.name,
        config=config,
        facts=facts,
        tokenizer=tokenizer,
        chat_template=checkpoint.chat_template,
        core=core,
        intake=PARTS.load("intake")(tokenizer, limits, seed=config.model.seed, clock=clock),
        grammars=grammars,
        tracer=tracer,
        default_sampling=_default_sampling(config.model, facts),
    )


def _load_tokenizer(model: ModelConfig, checkpoint: Checkpoint) -> Tokenizer:
    """The checkpoint's own tokenizer, or the one that the user named."""
    if model.tokenizer is None:
        return checkpoint.load_tokenizer()
    folder = Path(model.tokenizer).expanduser()
    if folder.is_dir():
        tokenizer: Tokenizer = PARTS.load("tokenizer")(folder)
        return tokenizer
    return open_named(model.tokenizer).load_tokenizer()


def overridden_sampling(model: ModelConfig) -> dict[str, Any]:
    """Fields of SamplingParams by `--override-generation-config`. Raises ConfigError."""
    fields: dict[str, Any] = {}
    for name, value in generation_override(model.override_generation_config).items():
        fields[RENAMED.get(name, name)] = value
    try:
        SamplingParams.from_optional(fields)
    except InvalidRequestError as error:
        raise ConfigError(f"--override-generation-config: {error}") from None
    return fields


def _default_sampling(model: ModelConfig, facts: ModelFacts) -> dict[str, Any]:
    """What generation_config.json and its override ask for.

    Values of the file that no request could carry are left out.
    """
    if model.generation_config in NO_GENERATION_CONFIG:
        return overridden_sampling(model)
    defaults: dict[str, Any] = {}
    for name, value in facts.generation_defaults.items():
        field = RENAMED.get(name, name)
        try:
            SamplingParams.from_optional({field: value})
        except InvalidRequestError as error:
            logger.warning("generation_config.json is ignored where it is wrong: %s", error)
        else:
            defaults[field] = value
    return defaults | overridden_sampling(model)


def _download_reporter(report: ReportProgress) -> OnProgress:
    """Bytes of a download as a share of a phase."""

    def on_progress(progress: PullProgress) -> None:
        total = progress.total_bytes
        report(progress.phase, min(1.0, progress.done_bytes / total) if total else 0.0)

    return on_progress
