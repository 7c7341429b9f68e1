"""Faults in the life of a broker: takeovers, ends in good order, what clients learn of it."""

from __future__ import annotations

from chaos import BROKERS, CONTROLLERS, Clients
from world import World

from fencepost_clusters.reference.core.node.effects import ShutdownAsked


def kill_active_controller(world: World, clients: Clients) -> None:
    """The active controller is killed while all brokers live, and one of them is just silent."""
    old = world.active_slot()
    world.kill(old)
    world.until(lambda: world.active() is not None, 10)
    world.run(1)
    world.start(old)


def ask_while_one_is_fenced(world: World, clients: Clients) -> None:
    """A broker dies; the others are asked which brokers there are, once they know."""
    victim = world.leader("orders")
    world.kill(victim)
    world.run(5)
    for slot in BROKERS:
        if slot != victim:
            clients.probe(slot, "Metadata")
    world.start(victim)


def stop_a_leader(world: World, clients: Clients) -> None:
    """A leader is asked to stop, and the controller fails before it can answer."""
    leader = world.leader("orders")
    old = world.active_slot()
    world.isolate(old, *(c for c in CONTROLLERS if c != old))
    world.step(leader, ShutdownAsked())
    world.until(lambda: leader not in world.alive, 12)
    world.start(leader)


def stop_unheard(world: World, clients: Clients) -> None:
    """A leader is asked to stop, and reaches no controller."""
    leader = world.leader("orders")
    world.isolate(leader, *CONTROLLERS)
    world.step(leader, ShutdownAsked())
    world.until(lambda: leader not in world.alive, 15)
    if leader in world.alive:
        world.kill(leader)
    world.start(leader)


def cut_off_past_the_session(world: World, clients: Clients) -> None:
    """A broker reaches no controller for longer than its session, and clients reach it."""
    victim = world.leader("orders")
    world.isolate(victim, *CONTROLLERS)
    world.run(4)
    for api in ("Fetch", "Metadata"):
        clients.probe(victim, api)


STRIKES = (
    kill_active_controller,
    ask_while_one_is_fenced,
    stop_a_leader,
    stop_unheard,
    cut_off_past_the_session,
)

FINDS = (
    *("fences-at-takeover", "online-past-session", "names-fenced-brokers"),
    *("stops-while-leading", "stops-never", "registers-unrecovered"),
)
"""The defects that these strikes show, and those of every run may not."""
