//! The settings of what others may take: connections, time and memory.

use std::time::Duration;

use super::ServeConfig;
use super::sections::row;
use crate::http1::{MAX_HEAD_BYTES, MAX_HEAD_FIELDS};
use crate::settings::{ByteSize, SettingSection};

/// What the number of open files leaves.
const ALL_THAT_IS_LEFT: &str = "what the limit of open files leaves, at most 16,384";
/// A part of the number of open files.
const AN_EIGHTH: &str = "an eighth of the limit of open files, at most 4,096";

pub(super) const CONNECTION_LIMITS: SettingSection<ServeConfig> = SettingSection {
    title: "Limits of connections",
    settings: &[
        row!(
            options.edge_connections: Option<usize>, "max_connections", "N",
            "The most visitor connections that may be open"
        )
        .between(1, u32::MAX as u64)
        .live()
        .unset(ALL_THAT_IS_LEFT),
        row!(
            options.edge_connections_per_address: Option<usize>, "max_connections_per_address", "N",
            "The most visitor connections that may be open from one address"
        )
        .between(1, u32::MAX as u64)
        .live()
        .unset("a quarter of these, 500 to 1,024"),
        row!(
            options.connections: Option<usize>, "max_api_connections", "N",
            "The most connections to the management API that may be open"
        )
        .between(1, u32::MAX as u64)
        .live()
        .unset(AN_EIGHTH),
        row!(
            options.agent_connections: Option<usize>, "max_agent_connections", "N",
            "The most agent connections that may be open"
        )
        .between(1, u32::MAX as u64)
        .live()
        .unset(AN_EIGHTH),
    ],
};

/// The shortest and the longest time for others, in milliseconds.
const MIN_TIME: u64 = 50;
const MAX_TIME: u64 = 24 * 3_600_000;

/// What one connection to the management API may take.
pub(super) const API_LIMITS: SettingSection<ServeConfig> = SettingSection {
    title: "Limits of the management API",
    settings: &[
        row!(
            options.api.first_byte: Duration, "api.first_byte_timeout", "DURATION",
            "How long a client of the management API may be silent at first"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.api.head: Duration, "api.head_timeout", "DURATION",
            "How long the head of a request may take, and the time between two requests"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.api.body: Duration, "api.body_timeout", "DURATION",
            "How long the body of a request may take"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.api.max_body: ByteSize, "api.max_body_size", "SIZE",
            "The largest body of a request"
        )
        .between(1 << 10, 64 << 20)
        .live(),
        row!(
            options.api.max_head: ByteSize, "api.max_head_size", "SIZE",
            "The largest head of a request; larger ones get 431"
        )
        .between(4 << 10, 128 << 10)
        .live(),
        row!(
            options.api.max_header_fields: usize, "api.max_header_fields", "N",
            "The most header fields of a request; with more it gets 431"
        )
        .between(20, MAX_HEAD_FIELDS as u64)
        .live(),
    ],
};

/// What one visitor, or one backend, may take.
pub(super) const EDGE_LIMITS: SettingSection<ServeConfig> = SettingSection {
    title: "Limits of public traffic",
    settings: &[
        row!(
            options.timeouts.first_byte: Duration, "edge.first_byte_timeout", "DURATION",
            "How long a visitor may be silent at first, where visitors speak first"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.timeouts.handshake: Duration, "edge.handshake_timeout", "DURATION",
            "How long a TLS handshake may take"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.timeouts.head: Duration, "edge.head_timeout", "DURATION",
            "How long the head of a request may take"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.timeouts.stall: Duration, "edge.stall_timeout", "DURATION",
            "How long nothing of a body may arrive from a visitor, or be taken by one"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.timeouts.idle: Duration, "edge.idle_timeout", "DURATION",
            "How long a visitor's connection may be idle between requests"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.timeouts.dial: Duration, "edge.dial_timeout", "DURATION",
            "How long opening a connection to a backend may take"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.timeouts.response: Duration, "edge.response_timeout", "DURATION",
            "How long a backend may take to begin its response"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.timeouts.upstream_idle: Duration, "edge.upstream_idle_timeout", "DURATION",
            "How long a connection to a backend waits for another request, at least"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.upstream_idle_connections: usize, "edge.upstream_idle_connections", "N",
            "How many connections to one backend may wait for another request"
        )
        .between(0, 4_096)
        .live(),
        row!(
            options.http2_streams: u32, "edge.http2_streams", "N",
            "How many requests a connection may carry at once with HTTP/2"
        )
        .between(1, 10_000)
        .live(),
        row!(
            options.max_head: ByteSize, "edge.max_head_size", "SIZE",
            "The largest head of a visitor's request, with its first line; larger ones get 431"
        )
        .between(1 << 10, MAX_HEAD_BYTES as u64)
        .live(),
        row!(
            options.max_header_fields: usize, "edge.max_header_fields", "N",
            "The most header fields of a visitor's request; with more it gets 431"
        )
        .between(10, MAX_HEAD_FIELDS as u64)
        .live(),
    ],
};

/// What one agent may take; a session keeps what it began with.
pub(super) const AGENT_LIMITS: SettingSection<ServeConfig> = SettingSection {
    title: "Limits of agents",
    settings: &[
        row!(
            options.agent_first_byte_timeout: Duration, "agent.first_byte_timeout", "DURATION",
            "How long an agent may be silent at first"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.agent_handshake_timeout: Duration, "agent.handshake_timeout", "DURATION",
            "How long the TLS handshake of an agent may take"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.login_timeout: Duration, "agent.login_timeout", "DURATION",
            "How long an agent may take to authenticate"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.login_bytes: ByteSize, "agent.max_login_size", "SIZE",
            "How much an agent may send before it has authenticated"
        )
        .between(4 << 10, 1 << 20)
        .live(),
        row!(
            options.heartbeat_interval: Duration, "agent.heartbeat_interval", "DURATION",
            "The interval of heartbeats: an agent is asked when it sent nothing for one and a half, and each sixth time"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.heartbeat_tolerance: Duration, "agent.heartbeat_tolerance", "DURATION",
            "How late a heartbeat may come back before the agent is taken for gone"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.agent_streams: usize, "agent.max_streams", "N",
            "How many connections of visitors an agent carries at once; agents of others break at more than 500"
        )
        .between(1, 4_000)
        .live(),
        row!(
            options.agent_queue_timeout: Duration, "agent.queue_timeout", "DURATION",
            "How long a visitor waits for one of them to end when there are that many"
        )
        .between(0, MAX_TIME)
        .live(),
        row!(
            options.agent_unread: ByteSize, "agent.max_unread_size", "SIZE",
            "How much the visitors of an agent may leave unread; beyond it, those with more than 256 KiB of it lose streams"
        )
        .between(256 << 10, 1 << 30)
        .live(),
        row!(
            options.reserve: Duration, "agent.reserve", "DURATION",
            "How long the addresses of an agent that is gone are kept for it"
        )
        .between(0, 30 * 86_400_000)
        .live(),
    ],
};
