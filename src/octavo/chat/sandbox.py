"""The Jinja environment of chat templates: as Transformers sets it up, and metered.

Owns the environment, the context of one rendering and the generated code.
Does not know: messages, errors of the API (`template.py`).
Used by: template, which imports this module when a template is first compiled, for Jinja is heavy.

Templates come from strangers. Jinja's immutable sandbox keeps them from looking around; here is
what it leaves open: that a template never ends, or makes more than memory holds. Each statement and
each operation that can make something large goes through `MeteredContext` first. What is callable
is an allow-list, so a method or filter that nobody has thought about is not there, rather than
unmetered.
"""

# ruff: noqa: N802 - the names of visitors are Jinja's

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, cast

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, CompilerExit, Frame, MacroRef
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from octavo.chat.render_budget import RenderBudget
from octavo.chat.sandbox_calls import BoundFormat, call_metered
from octavo.chat.sandbox_context import SHORT_TEXT, MeteredContext
from octavo.chat.sandbox_filters import metered_filters, metered_tests
from octavo.chat.sandbox_globals import (
    TemplateDict,
    TemplateNamespace,
    raise_exception,
    strftime_now,
)
from octavo.chat.sandbox_operators import OPERATORS
from octavo.chat.template_syntax import free_variables, loops_over_content, string_constants


class MeteredCode(CodeGenerator):
    """Jinja's code generator, with the calls of MeteredContext put in."""

    def blockvisit(self, nodes: Iterable[nodes.Node], frame: Frame) -> None:
        """Every block and every statement begins with a tick; it counts literal text."""
        self.writeline("context.tick()")
        try:
            for node in nodes:
                self.writeline(f"context.tick({_literal_length(node)})")
                self.visit(node, frame)
        except CompilerExit:  # what follows can never be reached
            pass

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("context.concat((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        self._wrap("made", super().visit_List, node, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        if node.ctx == "load":
            self._wrap("flat", super().visit_Tuple, node, frame)
        else:
            super().visit_Tuple(node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self._wrap("made", super().visit_Dict, node, frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        if isinstance(node.arg, nodes.Slice):
            self._wrap("made", super().visit_Getitem, node, frame)
        else:
            super().visit_Getitem(node, frame)

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        """Sides are metered unless one of them is short: `message.role == 'user'` costs nothing."""
        sides = [node.expr, *(operand.expr for operand in node.ops)]
        searches = any(operand.op in ("in", "notin") for operand in node.ops)
        if not searches and len(sides) == 2 and any(map(_is_short, sides)):
            super().visit_Compare(node, frame)
            return
        self.write("(")
        self._wrap("comparable", self.visit, node.expr, frame)
        for operand in node.ops:
            self.write({"notin": " not in "}.get(operand.op) or f" {COMPARISONS[operand.op]} ")
            self._wrap("comparable", self.visit, operand.expr, frame)
        self.write(")")

    def macro_body(
        self, node: nodes.Macro | nodes.CallBlock, frame: Frame
    ) -> tuple[Frame, MacroRef]:
        """Macros take the arguments that they name; a list of all would be an uncounted value."""
        if any(name.name in ("varargs", "kwargs") for name in node.find_all(nodes.Name)):
            self.fail("varargs and kwargs are not available in chat templates", node.lineno)
        return super().macro_body(node, frame)

    def visit_ScopedEvalContextModifier(
        self, node: nodes.ScopedEvalContextModifier, frame: Frame
    ) -> None:
        self.fail("autoescape is not available in chat templates", node.lineno)

    def _wrap(self, name: str, visit: Callable[..., None], node: nodes.Node, frame: Frame) -> None:
        self.write(f"context.{name}(")
        visit(node, frame)
        self.write(")")


COMPARISONS = {
    "eq": "==",
    "ne": "!=",
    "gt": ">",
    "gteq": ">=",
    "lt": "<",
    "lteq": "<=",
    "in": "in",
}


class GenerationTag(Extension):
    """`{% generation %}`: marks what the model wrote, for training. Here it only shows its body."""

    tags = {"generation"}  # noqa: RUF012 - declared so by Jinja

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class MeteredEnvironment(ImmutableSandboxedEnvironment):
    """One for each template, so nothing is shared but code."""

    code_generator_class = MeteredCode
    context_class = MeteredContext
    intercepted_binops = frozenset(OPERATORS)

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[GenerationTag, loopcontrols],
            optimized=False,  # nothing of a template runs while it is compiled
            finalize=_finalize,
        )
        self.filters = cast(Any, metered_filters())
        self.tests = cast(Any, metered_tests(cast(Any, self.tests)))
        del self.globals["lipsum"]
        self.globals.update(
            dict=TemplateDict(),
            namespace=TemplateNamespace,
            raise_exception=raise_exception,
            strftime_now=strftime_now(now),
        )

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        assert isinstance(context, MeteredContext)
        return OPERATORS[operator](context.budget, left, right)

    def call(self, context: Context, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Positional names stay free for the arguments of a macro."""
        assert isinstance(context, MeteredContext)
        if not self.is_safe_callable(callee):
            raise SecurityError(f"{callee!r} is not safely callable")
        return call_metered(context, callee, args, kwargs)

    def wrap_str_format(self, value: object) -> Any:
        """`str.format` is carried out by `call`, which knows the budget."""
        return BoundFormat.of(value)


@jinja2.pass_context
def _finalize(context: Context, value: object) -> str:
    """What `{{ value }}` shows."""
    assert isinstance(context, MeteredContext)
    return context.text(value)


class CompiledTemplate:
    """A template ready to be rendered any number of times, by any thread."""

    def __init__(self, source: str, now: Callable[[], datetime]) -> None:
        """`now` is the time that strftime_now shows. Raises jinja2.TemplateSyntaxError."""
        environment = MeteredEnvironment(now)
        syntax = environment.parse(source)
        self.wants_parts = loops_over_content(syntax)
        self.variables = free_variables(syntax)
        self.constants = string_constants(syntax)
        self.global_names = frozenset(environment.globals)
        self._template = environment.from_string(syntax)

    def render(self, variables: Mapping[str, object], budget: RenderBudget) -> str:
        """The text.

        Raises RenderStoppedError, TemplateRefusalError or whatever the template runs into.
        """
        context = self._template.new_context(dict(variables))
        assert isinstance(context, MeteredContext)
        context.start(budget)
        return "".join(self._template.root_render_func(context))

    def line_of(self, error: BaseException) -> int | None:
        """The line of the template in which the error came up."""
        line = None
        traceback = error.__traceback__
        while traceback is not None:
            if traceback.tb_frame.f_code.co_filename == "<template>":
                line = self._template.get_corresponding_lineno(traceback.tb_lineno)
            traceback = traceback.tb_next
        return line


def _literal_length(node: nodes.Node) -> int:
    """Characters of literal text that a statement puts out itself."""
    if not isinstance(node, nodes.Output):
        return 0
    return sum(len(part.data) for part in node.nodes if isinstance(part, nodes.TemplateData))


def _is_short(node: nodes.Expr) -> bool:
    if not isinstance(node, nodes.Const):
        return False
    return not isinstance(node.value, str) or len(node.value) <= SHORT_TEXT
