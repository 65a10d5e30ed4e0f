// A small agent that tells its steps with OpenTelemetry for Node: `node agent.mjs DOOR ADDRESS MODE`.
// DOOR is grpc, proto or json. In mode hang it waits in its tool.
import { writeSync } from "node:fs";
import { trace } from "@opentelemetry/api";
import { OTLPTraceExporter as OverGrpc } from "@opentelemetry/exporter-trace-otlp-grpc";
import { OTLPTraceExporter as OverJson } from "@opentelemetry/exporter-trace-otlp-http";
import { OTLPTraceExporter as OverProto } from "@opentelemetry/exporter-trace-otlp-proto";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { BatchSpanProcessor, NodeTracerProvider } from "@opentelemetry/sdk-trace-node";

const [door, address, mode] = process.argv.slice(2);
const exporter =
  door === "grpc"
    ? new OverGrpc({ url: `http://${address}` })
    : new (door === "json" ? OverJson : OverProto)({ url: `http://${address}/v1/traces` });
const provider = new NodeTracerProvider({
  resource: resourceFromAttributes({ "service.name": "node-agent" }),
  spanProcessors: [new BatchSpanProcessor(exporter)],
});
provider.register();
const tracer = trace.getTracer("node-agent");

const answer = [
  { role: "assistant", parts: [{ type: "tool_call", id: "call_1", name: "run_python", arguments: {} }] },
];
const chat = {
  "gen_ai.operation.name": "chat",
  "gen_ai.request.model": "scripted-1",
  "gen_ai.usage.input_tokens": 30,
  "gen_ai.usage.output_tokens": 12,
  "gen_ai.output.messages": JSON.stringify(answer),
};
const tool = {
  "gen_ai.operation.name": "execute_tool",
  "gen_ai.tool.name": "run_python",
  "gen_ai.tool.call.id": "call_1",
};
const agent = { "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "analyst" };

await tracer.startActiveSpan("invoke_agent analyst", { attributes: agent }, async (outer) => {
  tracer.startActiveSpan("chat scripted-1", { attributes: chat }, (span) => span.end());
  await tracer.startActiveSpan("execute_tool run_python", { attributes: tool }, async (span) => {
    if (mode === "hang") {
      await provider.forceFlush();
      writeSync(1, "in the tool\n");
      await new Promise((resolve) => setTimeout(resolve, 60_000));
    }
    span.end();
  });
  outer.end();
});
await provider.shutdown();
