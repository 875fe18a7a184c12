//! Every limit on what may be said, in one place. Each refusal names its limit.

/// Bytes in an identifier.
pub const ID_BYTES: usize = 255;
/// Bytes in one JSON request body. A definition with the largest routes, files and annotation
/// fits and leaves 880 KiB, for the escapes of JSON and everything else.
pub const JSON_BYTES: usize = 2 << 20;
/// Bytes in one binary frame between agent and coordinator. Such a definition fits.
pub const FRAME_BYTES: usize = 2 << 20;
/// Nesting of actions. Diego's own trees are five deep.
pub const ACTION_DEPTH: usize = 16;
/// Actions in one tree.
pub const ACTION_COUNT: usize = 256;
/// Instances of one LRP.
pub const INSTANCES: u32 = 100_000;
/// Processes that one request may name to be shown.
pub const FILTER_GUIDS: usize = 10_000;
/// Indices that one update replaces at the same time.
pub const IN_FLIGHT: u32 = 1_000;
/// Definitions that the instances of one LRP are made from at the same time.
pub const DEFINITIONS: usize = 32;
/// Bytes in an annotation.
pub const ANNOTATION_BYTES: usize = 10_240;
/// Bytes in all the values of the routes together.
pub const ROUTES_BYTES: usize = 131_072;
/// Bytes in all the volume-mounted files together.
pub const MOUNTED_FILES_BYTES: usize = 1 << 20;
/// Bytes in a text that has no limit of its own: a path, a URL, a log source.
pub const TEXT_BYTES: usize = 4_096;
/// Bytes in an argument or the value of an environment variable.
pub const ARGUMENT_BYTES: usize = 131_072;
/// Arguments of one run action.
pub const ARGUMENTS: usize = 4_096;
/// Environment variables of one container or action.
pub const ENVIRONMENT: usize = 4_096;
/// Ports that one container exposes.
pub const PORTS: usize = 256;
/// Egress rules of one container.
pub const EGRESS_RULES: usize = 4_096;
/// Destinations of one egress rule, comma lists counted out.
pub const DESTINATIONS: usize = 4_096;
/// Entries of every other list or map: layers, sidecars, mounts, checks, tags, files.
pub const ENTRIES: usize = 256;
/// Bytes of a stored crash reason, placement error, failure or rejection reason.
pub const REASON_BYTES: usize = 1_024;
/// Bytes of a task's result.
pub const RESULT_BYTES: usize = 51_200;
/// Nesting of brackets in the value of a route: half of what JSON readers commonly take.
pub const ROUTE_DEPTH: usize = 64;
/// Megabytes of memory or disk, one pebibyte: sums of a few still fit where Diego's clients put them.
pub const MEGABYTES: u32 = 1 << 30;
/// Processes of one container: the most that Linux can count.
pub const PIDS: u32 = 1 << 22;
/// Share of the processors.
pub const CPU_WEIGHT: u32 = 1_024;
/// Milliseconds of a timeout or an interval: a year.
pub const SPAN_MS: u64 = 366 * 24 * 60 * 60 * 1_000;
/// The largest port.
pub const PORT: u32 = 65_535;
/// Requests in one report of a cell.
pub const REPORT_ITEMS: usize = 1_024;
/// Bytes of the requests in one report, unless a single one is longer: half of what a link carries.
pub const REPORT_BYTES: usize = 1 << 20;
/// Definitions that are asked for at once, of LRPs and of tasks each.
pub const FETCH_ITEMS: usize = 1_024;
/// Bytes of the definitions in one reply, unless a single one is longer. A reply may have twice as many.
pub const FETCH_BYTES: usize = 1 << 20;
/// Instances, and tasks, that a cell names in one page of a sync.
pub const SYNC_ITEMS: usize = 1_024;
/// Bytes of the records in one page of a sync, unless a single one is longer.
pub const SYNC_BYTES: usize = 1 << 20;
/// Orders to one cell in one message.
pub const ORDER_ITEMS: usize = 1_024;
/// Bytes of the orders in one message, unless a single one is longer.
pub const ORDER_BYTES: usize = 1 << 20;
/// Bytes of a certificate signing request, as PEM. One for the largest key has 4 KiB.
pub const SIGNING_REQUEST_BYTES: usize = 16 << 10;
/// Days that a client certificate is valid: it cannot be taken back, and some clients take none of a server
/// that is longer.
pub const CERTIFICATE_DAYS: u32 = 825;
/// Names and addresses of a server in one certificate.
pub const CERTIFICATE_HOSTS: usize = 64;
/// Bytes in the name of a host, as DNS has it.
pub const HOST_BYTES: usize = 253;
