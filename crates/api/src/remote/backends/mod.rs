//! Backends: where an edge sends the traffic that it lets through.

pub mod failover;

pub mod http_response;
pub mod static_;
pub mod tunnel_group;
pub mod weighted;
