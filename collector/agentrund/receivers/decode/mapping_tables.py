"""The mapping as data: which attribute makes a span what it is, and which ones hold which field.

Of a list of keys the first that is present counts. A new convention begins with rows here.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from agentrund.model.otlp import SpanKind


class KindRule(NamedTuple):
    """What the values of one attribute mean; ``other`` for a value not listed, None to ask the next rule."""

    attribute: str
    values: dict[str, SpanKind]
    other: SpanKind | None


KIND_RULES: Final = (
    KindRule(
        "openinference.span.kind",
        {
            "llm": SpanKind.LLM,
            "tool": SpanKind.TOOL,
            "agent": SpanKind.AGENT,
            "embedding": SpanKind.POINT,
            "retriever": SpanKind.POINT,
            "reranker": SpanKind.POINT,
            "guardrail": SpanKind.POINT,
        },
        SpanKind.STEP,
    ),
    KindRule(
        "langsmith.span.kind",
        {
            "llm": SpanKind.LLM,
            "tool": SpanKind.TOOL,
            "embedding": SpanKind.POINT,
            "retriever": SpanKind.POINT,
        },
        SpanKind.STEP,
    ),
    KindRule(
        "ai.operationId",
        {
            **dict.fromkeys(
                (
                    "ai.generatetext.dogenerate",
                    "ai.generateobject.dogenerate",
                    "ai.streamtext.dostream",
                    "ai.streamobject.dostream",
                ),
                SpanKind.LLM,
            ),
            **dict.fromkeys(("ai.embed.doembed", "ai.embedmany.doembed"), SpanKind.POINT),
            **dict.fromkeys(("ai.embed", "ai.embedmany"), SpanKind.STEP),
            "ai.toolcall": SpanKind.TOOL,
        },
        SpanKind.AGENT,
    ),
    KindRule("llm.request.type", {"chat": SpanKind.LLM, "completion": SpanKind.LLM}, None),
    KindRule(
        "gen_ai.operation.name",
        {
            **dict.fromkeys(
                ("chat", "text_completion", "generate_content", "completion", "generate", "llm_call"),
                SpanKind.LLM,
            ),
            **dict.fromkeys(("execute_tool", "tool_call"), SpanKind.TOOL),
            **dict.fromkeys(("invoke_agent", "invoke_workflow"), SpanKind.AGENT),
            **dict.fromkeys(
                (
                    "embeddings",
                    "retrieval",
                    "search_memory",
                    "create_memory",
                    "update_memory",
                    "upsert_memory",
                    "delete_memory",
                    "create_memory_store",
                    "delete_memory_store",
                ),
                SpanKind.POINT,
            ),
            "create_agent": SpanKind.DETAIL,
        },
        SpanKind.STEP,
    ),
    KindRule("traceloop.span.kind", {}, SpanKind.STEP),
    KindRule("mcp.method.name", {}, SpanKind.DETAIL),
)

POINT_NAMES: Final = {
    "embedding": "embeddings",
    "retriever": "retrieval",
    "reranker": "rerank",
    "guardrail": "guardrail",
}
"""OpenInference kinds by the name of the operation they are."""

SHADOW_SCOPES: Final = frozenset({"com.anthropic.sdk.python"})
"""Client libraries that tell their calls themselves, beside whatever instruments them."""

SESSION: Final = (
    "agentrund.session_id",
    "session.id",
    "gen_ai.conversation.id",
    "conversation.id",
    "langfuse.session.id",
    "traceloop.association.properties.session_id",
    "traceloop.association.properties.thread_id",
    "langsmith.metadata.session_id",
    "langsmith.metadata.thread_id",
    "ai.telemetry.metadata.sessionId",
)
SESSION_IN_METADATA: Final = ("session_id", "thread_id")

READ_IN_PLACE: Final = frozenset(
    {*(rule.attribute for rule in KIND_RULES), *SESSION, "span.type", "event.name", "event.sequence"}
)
"""Attributes that rules read and leave where they are: what an item is, and whose."""

AGENT_NAME: Final = (
    "gen_ai.agent.name",
    "agent.name",
    "agent_name",
    "graph.node.id",
    "gen_ai.workflow.name",
    "traceloop.entity.name",
    "ai.telemetry.functionId",
)
MODEL: Final = (
    "gen_ai.response.model",
    "gen_ai.request.model",
    "llm.response.model_name",
    "llm.model_name",
    "ai.response.model",
    "ai.model.id",
    "model",
)
COUNTS: Final = {
    "tokens_in": (
        "gen_ai.usage.input_tokens",
        "llm.token_count.prompt",
        "gen_ai.usage.prompt_tokens",
        "ai.usage.inputTokens",
    ),
    "tokens_out": (
        "gen_ai.usage.output_tokens",
        "llm.token_count.completion",
        "gen_ai.usage.completion_tokens",
        "ai.usage.outputTokens",
    ),
    "cached_input_tokens": (
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        "llm.token_count.prompt_details.cache_read",
        "ai.usage.cachedInputTokens",
    ),
    "cache_write_tokens": (
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_write.input_tokens",
        "gen_ai.usage.cache_creation_input_tokens",
        "gen_ai.usage.cache_write_input_tokens",
        "llm.token_count.prompt_details.cache_write",
    ),
    "reasoning_tokens": (
        "gen_ai.usage.reasoning.output_tokens",
        "llm.token_count.completion_details.reasoning",
        "ai.usage.reasoningTokens",
    ),
}
COST: Final = ("cost_usd", "operation.cost", "llm.cost.total", "gen_ai.usage.cost")
STOP_REASON: Final = (
    "gen_ai.response.finish_reasons",
    "llm.finish_reason",
    "stop_reason",
    "anthropic.message.stop_reason",
    "ai.response.finishReason",
)
RAW_INPUT: Final = (
    "ai.prompt.messages",
    "ai.prompt",
    "gen_ai.prompt",
    "traceloop.entity.input",
    "input.value",
)
RAW_OUTPUT: Final = ("ai.response.text", "gen_ai.completion", "traceloop.entity.output", "output.value")

TOOL_NAME: Final = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name", "tool_name", "function_name")
TOOL_CALL_ID: Final = (
    "gen_ai.tool.call.id",
    "gen_ai.tool.call_id",
    "ai.toolCall.id",
    "tool.id",
    "tool_use_id",
    "call_id",
)
NO_CALL_ID: Final = "<not specified>"
TOOL_ARGS: Final = (
    "gen_ai.tool.call.arguments",
    "ai.toolCall.args",
    "input.value",
    "tool_input",
    "tool_parameters",
    "arguments",
    "function_args",
)
TOOL_RESULT: Final = ("gen_ai.tool.call.result", "ai.toolCall.result", "output.value", "output")

ERROR_TYPE: Final = ("error.type",)
ERROR_TYPE_LAST: Final = ("error_type", "error_class", "status_code")
ERROR_TEXT: Final = ("error", "error.message")
UNKNOWN_ERROR: Final = "_OTHER"

LEVELS: Final = ((21, "FATAL"), (17, "ERROR"), (13, "WARNING"), (9, "INFO"), (5, "DEBUG"), (1, "TRACE"))
"""Lowest severity number of each level."""
