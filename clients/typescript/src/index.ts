export * from "./client.js";
export type { CallOptions, TransportOptions } from "./call.js";
export * from "./deliveries.js";
export * from "./errors.js";
export type { components, operations, paths } from "./openapi.js";
export * from "./work.js";
