//! The service, over real sockets in this process.

mod accounts;
mod agents;
mod audit;
mod bad_input;
mod breaker;
mod cluster;
mod cluster_returning;
mod cut_off;
mod draining;
mod elsewhere;
mod endpoints;
mod http;
mod nodes;
mod paging;
mod resources;
mod store;
pub mod support;
mod table;
mod without_database;
