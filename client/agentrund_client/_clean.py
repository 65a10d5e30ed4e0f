"""Any Python value into plain JSON values, whatever it is: the slow path behind `_wire`.

What has no JSON form is sent as text. Nothing raises `Exception` out of here: a value whose own code fails
(`__repr__`, `keys`, `model_dump`) becomes a note that says so.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# orjson writes 254 levels and Python's recursion limit is 1,000; nobody reads deeper by eye.
MAX_DEPTH = 100


def clean(value: Any) -> Any:
    """A copy of `value` made of dict, list, str, int, float, bool and None, strings without surrogates."""
    return _clean(value, MAX_DEPTH, set())


def text_of(value: Any) -> str | None:
    """What a `text` key may hold: strings as they are, None for None, anything else as its JSON."""
    if value is None or type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _bytes(value)
    import json  # noqa: PLC0415 - only structured output needs it

    return json.dumps(clean(value), ensure_ascii=False)


def name_of(value: Any) -> str | None:
    """What a `name`, `type` or id may be: a string or None."""
    return value if value is None or type(value) is str else _text(value)


def merged(reserved: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """The contract's keys and the user's; a user's key of the same name gets an underscore."""
    if not fields:
        return reserved
    if fields.keys().isdisjoint(reserved):
        return {**reserved, **fields}
    result = dict(reserved)
    for key, value in fields.items():
        free = key
        while free in result:
            free += "_"
        result[free] = value
    return result


def safe_repr(value: Any) -> str:
    """repr(), or a note where repr() itself fails."""
    try:
        return repr(value)
    except Exception as fault:  # noqa: BLE001 - foreign code
        return f"<{_type_name(value)}: repr failed with {type(fault).__name__}>"


def safe_str(value: Any) -> str:
    """str(), else repr(), else a note."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - foreign code
        return safe_repr(value)


def _clean(value: Any, depth: int, above: set[int]) -> Any:
    try:
        kind = type(value)
        if value is None or kind is bool:
            return value
        for types, convert in _SCALARS:
            if isinstance(value, types):
                return convert(value)
        return _structure(value, depth, above)
    except Exception as fault:  # noqa: BLE001 - foreign code
        return f"<{_type_name(value)}: not readable, {type(fault).__name__}>"


def _structure(value: Any, depth: int, above: set[int]) -> Any:
    """Containers and objects; `above` holds the ids of the containers around this one."""
    if id(value) in above:
        return f"<{_type_name(value)}: contains itself>"
    if depth == 0:
        return f"<{_type_name(value)}: nested deeper than {MAX_DEPTH} levels>"
    above.add(id(value))
    try:
        if isinstance(value, Mapping):
            return _mapping(_pairs(value), depth, above)
        if isinstance(value, list | tuple | set | frozenset):
            return [_clean(item, depth - 1, above) for item in tuple(value)]
        return _object(value, depth, above)
    finally:
        above.discard(id(value))


def _pairs(value: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    # dict.items is atomic under the GIL: another thread may be filling the dict meanwhile.
    return list(dict.items(value)) if isinstance(value, dict) else list(value.items())


def _mapping(pairs: Iterable[tuple[Any, Any]], depth: int, above: set[int]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, item in pairs:
        text = _free(_key(key), result)
        result[text] = _clean(item, depth - 1, above)
    return result


def _key(key: Any) -> str:
    if isinstance(key, str):
        return _text(key)
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    return _text(_bytes(key) if isinstance(key, bytes) else safe_str(key))


def _free(key: str, taken: Mapping[str, Any]) -> str:
    """Two keys may look alike as text (1 and "1"): the later one gets an underscore."""
    while key in taken:
        key += "_"
    return key


def _object(value: Any, depth: int, above: set[int]) -> Any:
    kind = type(value)
    fields = getattr(kind, "__dataclass_fields__", None)
    if fields is not None and not isinstance(value, type):
        pairs = [(name, getattr(value, name, "<unset>")) for name in fields]
        return _mapping(pairs, depth, above)
    if callable(getattr(kind, "model_dump", None)):  # pydantic, which the model SDKs answer in
        return _clean(value.model_dump(), depth - 1, above)
    if isinstance(value, os.PathLike):
        return _text(os.fspath(value))
    if hasattr(kind, "isoformat"):
        return _text(value.isoformat())
    if hasattr(kind, "__members__") and hasattr(value, "value"):  # an enum, without importing enum
        return _clean(value.value, depth - 1, above)
    return _text(safe_str(value) if kind.__name__ in {"UUID", "Decimal"} else safe_repr(value))


def _text(value: Any) -> str:
    """A string that is valid UTF-8 once encoded: lone surrogates become U+FFFD."""
    if isinstance(value, bytes):
        return _bytes(value)
    text = str.__str__(value) if isinstance(value, str) else safe_str(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        # Surrogate pairs (an emoji cut in two and joined again) are a character; a single one is not.
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _bytes(value: bytes | bytearray | memoryview) -> str:
    raw = bytes(value)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        import base64  # noqa: PLC0415 - binary payloads are rare

        return "base64:" + base64.b64encode(raw).decode()


def _integer(value: int) -> Any:
    try:
        int.__repr__(value)
    except ValueError:  # more digits than sys.set_int_max_str_digits allows; hex has no limit
        return hex(value)
    return int.__add__(value, 0)


def _float(value: float) -> Any:
    if math.isfinite(value):
        return float.__add__(value, 0.0)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def has_nonfinite(value: Any, depth: int = MAX_DEPTH) -> bool:
    """Is there a NaN or an infinity in these plain values? orjson would write it as null, silently."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if depth == 0:
        return True
    if isinstance(value, dict):
        return any(has_nonfinite(item, depth - 1) for item in tuple(dict.values(value)))
    if isinstance(value, list | tuple):
        return any(has_nonfinite(item, depth - 1) for item in tuple(value))
    return False


def _type_name(value: Any) -> str:
    return _text(type(value).__name__)


_SCALARS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (str, _text),
    (int, _integer),
    (float, _float),
    ((bytes, bytearray, memoryview), _bytes),
)
