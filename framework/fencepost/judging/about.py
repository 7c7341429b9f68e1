"""What a finding is about: facts by name, from which its sentence is made.

A rule states facts, and a template that names them. The sentence is made of both, for people only:
no code reads it. Whoever asks what a violation is about (known findings, explanations, the report's
candidates, tests) reads the facts. So a sentence can be reworded, and nothing else changes. A
`Reason`, why something is not judged, is made in the same way.

    violated(
        event.ref,
        Evidence.SELF,
        "{process} granted {lease} to {client} in term {term}, though it had expired",
        process=process_scope("server-1#2"),
        lease=Scope("lease", "7"),
        client=process_scope("clients/writer-1#1"),
        term=17,
    )

A fact that is part of the cluster is a `Scope`, in the words of `Authority.scope` and
`Concerning.concerns`: the violation is *about* it. Anything else is a figure or a text: an offset,
an epoch, a time, the error that a client got, the ids of members that are only the background.

A sentence names a scope by its name where that says what it is: `server-1#2`, `orders-0`. A name
without a letter, such as the id of a node, does not. So it comes with its kind: `{server} names
{master} in epoch {epoch}` with `master=Scope("redis", "2")` says "names redis 2". The kind is left
out where the template says it, or the fact's own name, in words: "server {server} serves", "master
{master}". Scopes in a list have their names only: "servers {servers}" is "servers [1, 2]".

See docs/decisions/24-facts.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from string import Formatter
from typing import final

from msgspec import Struct

from fencepost.events.words import span


@final
class Scope(Struct, frozen=True, gc=False, order=True):
    """Something that authority is held over, or that takes part: `lease 7`, `server 2`, `process
    server-2#1`, `slot server-2`."""

    kind: str
    name: str

    def __str__(self) -> str:
        """Its name alone: `7`, `2`, `server-2#1`."""
        return self.name

    @property
    def words(self) -> str:
        """As events name it: `lease 7` (see `Authority.scope`); the kind alone where there is only
        one of it, such as `leader`."""
        return f"{self.kind} {self.name}".rstrip()


def process_scope(name: str) -> Scope:
    """The process of this name, such as `server-2#1`."""
    return Scope("process", name)


def slot_scope(name: str) -> Scope:
    """The slot of this name, such as `server-2`."""
    return Scope("slot", name)


Fact = bool | int | float | str | Scope | tuple[int | str | Scope, ...]
"""What a finding states under a name."""
Facts = Mapping[str, Fact]


def sentence_of(template: str, facts: Facts) -> str:
    """The template with its facts. A fact whose name ends with `_ns` is a time, and written as
    `5.2 s`; a tuple is written as a list; a scope as the module says. Raises KeyError for a name
    that no fact has, so that a misspelt one is found by the first test that breaks the promise."""
    return template.format_map({name: _word(name, fact, template) for name, fact in facts.items()})


@final
class Reason(Struct, frozen=True, gc=False):
    """Why something is not judged: facts, and the template of which words are made for people.

    The words are made when they are asked for: a rule looks for excuses at many events, and few of
    them excuse anything.
    """

    template: str
    facts: Facts = {}

    @staticmethod
    def of(template: str, /, **facts: Fact) -> Reason:
        """The reason with these facts; each `{name}` of the template is the fact of that name."""
        return Reason(template, facts)

    @property
    def words(self) -> str:
        """The template with its facts."""
        return sentence_of(self.template, self.facts)

    def within(self, template: str, /, **facts: Fact) -> Reason:
        """A reason that names this one as `{why}`. It has the facts of both."""
        return Reason(template.replace("{why}", self.template), {**self.facts, **facts})


def _word(name: str, fact: Fact, template: str) -> object:
    if isinstance(fact, tuple):
        return f"[{', '.join(map(str, fact))}]"
    if isinstance(fact, Scope):
        return _named(name, fact, template)
    return span(fact) if name.endswith("_ns") and isinstance(fact, int) else fact


def _named(name: str, scope: Scope, template: str) -> str:
    """The scope with its kind, unless its own name or the words of the template say that."""
    if any(map(str.isalpha, scope.name)):
        return scope.name
    text = "".join(words for words, *_ in Formatter().parse(template))
    words = "".join(one if one.isalnum() else " " for one in text.lower()).split()
    said = any(word in words or f"{word}s" in words for word in (scope.kind.lower(), name.lower()))
    return scope.name if scope.name and said else scope.words


def scopes_of(facts: Facts) -> Iterator[Scope]:
    """The scopes among the facts, in their order."""
    for fact in facts.values():
        for one in fact if isinstance(fact, tuple) else (fact,):
            if isinstance(one, Scope):
                yield one
