"""The algorithms, one file each, all of the same shape.

`decide(state, meter, now, cost)` answers one hit with an `Outcome`: the next state, then
the fields of a `Decision` in their order. It reads no clock and changes nothing; on a
denial the next state is the state itself. There is one exception: a state that lies in
the future shows that the clock has stepped back. It is then moved to the present, with
everything that was counted, also on a denial, because otherwise the beginning of the
wait would be unknown.

`charge(state, meter, now, cost)` counts a cost unconditionally, also past the limit,
and returns the next state. (Slots cannot be forced.)

`give_back(state, meter, now, stamp, amount)` returns the state without what was
admitted at `stamp`, and the state itself once that has passed.

`expires_at(state, meter)` is the first instant at which the state no longer matters.

`creditable_until(stamp, meter)` is the first instant at which giving back has no effect.
"""
