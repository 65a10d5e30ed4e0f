from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentrund.receivers.budget import LANE, Budget, Claim


def asked(budget: Budget, size: int, granted: list[int], name: int = 0) -> Claim:
    return budget.claim(size, lambda: granted.append(name))


def test_claims_are_granted_in_order_as_room_comes():
    budget, granted = Budget(100), []
    claims = [asked(budget, 40, granted, n) for n in range(4)]
    assert granted == [0, 1]
    claims[0].close()
    assert granted == [0, 1, 2]
    claims[3].close()
    claims[1].close()
    assert granted == [0, 1, 2]
    assert (budget.used, budget.waiting) == (40, 0)


def test_one_is_always_granted_however_little_room_there_is():
    budget, granted = Budget(10), []
    budget.count(500)
    budget.tight = True
    first = asked(budget, 1000, granted, 1)
    asked(budget, 1, granted, 2)
    assert granted == [1]
    first.close()
    assert granted == [1, 2]


def test_what_is_counted_takes_the_place_of_claims():
    budget, granted = Budget(100), []
    asked(budget, 10, granted, 1)
    budget.count(95)
    assert budget.full
    asked(budget, 10, granted, 2)
    assert granted == [1]
    budget.count(-40)
    assert granted == [1, 2]
    assert not budget.full


def test_an_end_of_scarcity_lets_those_in_who_wait():
    budget, granted = Budget(100), []
    budget.tight = True
    for n in range(3):
        asked(budget, 30, granted, n)
    assert granted == [0]
    budget.tight = False
    assert granted == [0, 1, 2]


def test_a_small_claim_passes_those_who_wait_and_large_ones_are_not_kept_from_their_turn():
    budget, granted = Budget(320), []
    first = asked(budget, 200, granted, 1)
    asked(budget, 200, granted, 2)
    small = [asked(budget, 10, granted, n) for n in range(10, 16)]
    assert granted == [1, 10, 11, 12, 13], "an eighth of the limit"
    first.close()
    assert granted == [1, 10, 11, 12, 13, 2, 14, 15], "in the order they asked again"
    for claim in small:
        claim.close()
    assert budget.used == 200


def test_while_memory_is_short_nobody_passes():
    budget, granted = Budget(320), []
    budget.tight = True
    asked(budget, 200, granted, 1)
    asked(budget, 1, granted, 2)
    assert granted == [1]


def test_what_a_claim_does_not_need_goes_to_those_who_wait():
    budget, granted = Budget(100), []
    first = asked(budget, 90, granted, 1)
    second = asked(budget, 90, granted, 2)
    second.shrink(1)
    assert (second.size, budget.used) == (90, 90), "it is not known yet what it needs"
    first.shrink(10)
    first.shrink(50)
    assert (granted, first.size, budget.used) == ([1, 2], 10, 100)
    first.close()
    first.shrink(1)
    second.close()
    assert budget.used == 0


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 9), st.booleans()), max_size=60))
def test_nobody_waits_for_ever_and_the_limit_holds(plays):
    budget, granted, open_claims = Budget(100), [], []
    for size, which, shrinks in plays:
        open_claims.append(asked(budget, size, granted))
        assert budget.used <= 100 * (1 + LANE)
        if which < len(open_claims):
            if shrinks:
                open_claims[which].shrink(which)
            else:
                open_claims.pop(which).close()
            held = [claim for claim in open_claims if claim.granted]
            assert budget.used == sum(claim.size for claim in held)
    while open_claims:
        assert any(claim.granted for claim in open_claims)
        next(c for c in open_claims if c.granted).close()
        open_claims = [c for c in open_claims if c._budget is not None]
    assert (budget.used, budget.waiting) == (0, 0)
