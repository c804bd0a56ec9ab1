"""What can be read off the syntax tree of a chat template without running it.

Owns three questions: which variables it asks for, which texts it mentions, and whether it expects
the content of a message as a list of parts. Used by: sandbox.
"""

from __future__ import annotations

from collections.abc import Iterator

from jinja2 import meta, nodes


def free_variables(syntax: nodes.Template) -> frozenset[str]:
    """Names that have to come from outside, among them Jinja's globals."""
    return frozenset(meta.find_undeclared_variables(syntax))


def string_constants(syntax: nodes.Template) -> frozenset[str]:
    """Texts that stand in expressions."""
    constants = (constant.value for constant in syntax.find_all(nodes.Const))
    return frozenset(value for value in constants if isinstance(value, str))


def loops_over_content(syntax: nodes.Template) -> bool:
    """Whether the template walks through the parts of a message's content: vLLM's test for
    `openai`.

    It does if it has a loop over `content` of a variable that runs over the messages, in any of the
    ways to write that; filters, tests and slices around it do not matter.
    """
    loops = list(syntax.find_all(nodes.For))
    sources = set(_names_of_messages(syntax))
    messages = {
        loop.target.name
        for loop in loops
        if isinstance(loop.target, nodes.Name) and _is_variable(loop.iter, sources)
    }
    return any(_is_content(loop.iter, messages) for loop in loops)


def _names_of_messages(syntax: nodes.Template) -> Iterator[str]:
    """`messages` and variables that hold it or a part of it."""
    assignments = [
        (assignment.target.name, assignment.node)
        for assignment in syntax.find_all(nodes.Assign)
        if isinstance(assignment.target, nodes.Name)
    ]
    found = {"messages"}
    waiting = ["messages"]
    while waiting:
        name = waiting.pop()
        yield name
        for target, value in assignments:
            if target not in found and _is_variable(value, {name}):
                found.add(target)
                waiting.append(target)


def _bare(node: nodes.Node | None) -> nodes.Node | None:
    """The expression inside of filters, tests and slices."""
    while True:
        if isinstance(node, nodes.Filter | nodes.Test) or (
            isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
        ):
            node = node.node
        else:
            return node


def _is_variable(node: nodes.Node, names: set[str]) -> bool:
    bare = _bare(node)
    return isinstance(bare, nodes.Name) and bare.ctx == "load" and bare.name in names


def _is_content(node: nodes.Node, messages: set[str]) -> bool:
    """`message.content` or `message['content']`."""
    bare = _bare(node)
    if isinstance(bare, nodes.Getattr):
        return bare.attr == "content" and _is_variable(bare.node, messages)
    if isinstance(bare, nodes.Getitem) and isinstance(bare.arg, nodes.Const):
        return bare.arg.value == "content" and _is_variable(bare.node, messages)
    return False
