export * from "./client.js";
export type { CallOptions, TransportOptions } from "./call.js";
export * from "./deliveries.js";
export * from "./errors.js";
export type { components, operations, paths } from "./openapi.js";
export {
  Calendars,
  Channels,
  Fleets,
  Keys,
  Tenants,
  type Calendar,
  type Changes,
  type Channel,
  type Fleet,
  type Key,
  type NewChannel,
  type NewFleet,
  type NewKey,
  type Tenant,
  type TenantSettings,
} from "./resources.js";
export type { Matching, Tagged } from "./send.js";
export * from "./work.js";
