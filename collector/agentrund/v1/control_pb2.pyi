from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_OK: _ClassVar[Outcome]
    OUTCOME_FAILED: _ClassVar[Outcome]
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_OK: Outcome
OUTCOME_FAILED: Outcome

class HeartbeatRequest(_message.Message):
    __slots__ = ("resource",)
    class ResourceEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    resource: _containers.ScalarMap[str, str]
    def __init__(self, resource: _Optional[_Mapping[str, str]] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("source", "every_s", "run_ids")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    EVERY_S_FIELD_NUMBER: _ClassVar[int]
    RUN_IDS_FIELD_NUMBER: _ClassVar[int]
    source: str
    every_s: float
    run_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, source: _Optional[str] = ..., every_s: _Optional[float] = ..., run_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class EndRunRequest(_message.Message):
    __slots__ = ("run_id", "session_id", "resource", "outcome", "cause")
    class ResourceEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    session_id: str
    resource: _containers.ScalarMap[str, str]
    outcome: Outcome
    cause: str
    def __init__(self, run_id: _Optional[str] = ..., session_id: _Optional[str] = ..., resource: _Optional[_Mapping[str, str]] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., cause: _Optional[str] = ...) -> None: ...

class EndRunResponse(_message.Message):
    __slots__ = ("runs",)
    RUNS_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[Run]
    def __init__(self, runs: _Optional[_Iterable[_Union[Run, _Mapping]]] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ("run_id", "session_id")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    session_id: str
    def __init__(self, run_id: _Optional[str] = ..., session_id: _Optional[str] = ...) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("version", "pid", "started_at", "root", "runs", "json")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    version: str
    pid: int
    started_at: str
    root: str
    runs: _containers.RepeatedCompositeFieldContainer[Run]
    json: str
    def __init__(self, version: _Optional[str] = ..., pid: _Optional[int] = ..., started_at: _Optional[str] = ..., root: _Optional[str] = ..., runs: _Optional[_Iterable[_Union[Run, _Mapping]]] = ..., json: _Optional[str] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("run_id", "session_id", "status", "attempt", "last_seq", "dir", "sources", "cause")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    DIR_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    session_id: str
    status: str
    attempt: int
    last_seq: int
    dir: str
    sources: int
    cause: str
    def __init__(self, run_id: _Optional[str] = ..., session_id: _Optional[str] = ..., status: _Optional[str] = ..., attempt: _Optional[int] = ..., last_seq: _Optional[int] = ..., dir: _Optional[str] = ..., sources: _Optional[int] = ..., cause: _Optional[str] = ...) -> None: ...

class TailRequest(_message.Message):
    __slots__ = ("run_id", "session_id", "after_seq", "follow")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    session_id: str
    after_seq: int
    follow: bool
    def __init__(self, run_id: _Optional[str] = ..., session_id: _Optional[str] = ..., after_seq: _Optional[int] = ..., follow: bool = ...) -> None: ...

class TailResponse(_message.Message):
    __slots__ = ("seq", "record")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    seq: int
    record: bytes
    def __init__(self, seq: _Optional[int] = ..., record: _Optional[bytes] = ...) -> None: ...
