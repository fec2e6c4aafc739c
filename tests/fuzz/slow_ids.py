"""The specification of ids a second time, in plain Python and as slow as it is plain: XXH64 and two's complement."""

_PRIMES = (11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261)
_WORD = 2**64 - 1


def slow_id(value: int | str | bytes) -> int:
    """The id of one raw value. Raises ValueError if it has none."""
    if isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise ValueError("outside of 64 bits")
        return _signed(value % 2**64)
    return _signed(slow_xxh64(value.encode("utf-8") if isinstance(value, str) else value))


def slow_xxh64(data: bytes) -> int:
    """XXH64 with seed 0, after its public description."""
    one, two, three, four, five = _PRIMES
    rest, length = data, len(data)
    if length >= 32:
        lanes = [(one + two) & _WORD, two, 0, -one & _WORD]
        while len(rest) >= 32:
            for lane in range(4):
                lanes[lane] = _round(lanes[lane], int.from_bytes(rest[8 * lane : 8 * lane + 8], "little"))
            rest = rest[32:]
        total = sum(_rotated(own, by) for own, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _WORD
        for own in lanes:
            total = ((total ^ _round(0, own)) * one + four) & _WORD
    else:
        total = five
    total = (total + length) & _WORD
    while len(rest) >= 8:
        total ^= _round(0, int.from_bytes(rest[:8], "little"))
        total = (_rotated(total, 27) * one + four) & _WORD
        rest = rest[8:]
    if len(rest) >= 4:
        total ^= int.from_bytes(rest[:4], "little") * one & _WORD
        total = (_rotated(total, 23) * two + three) & _WORD
        rest = rest[4:]
    for byte in rest:
        total = _rotated(total ^ (byte * five & _WORD), 11) * one & _WORD
    total = (total ^ total >> 33) * two & _WORD
    total = (total ^ total >> 29) * three & _WORD
    return total ^ total >> 32


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * _PRIMES[1]) & _WORD, 31) * _PRIMES[0] & _WORD


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> (64 - by)) & _WORD


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word
