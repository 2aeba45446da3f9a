"""The admin as Django's test client sees it."""

from tests.support.signed_in import agent, alice, as_alice, as_bob, as_olga, bob, claim, olga

__all__ = ["agent", "alice", "as_alice", "as_bob", "as_olga", "bob", "claim", "olga"]
