//! The service, over real sockets in this process.

mod accounts;
mod support;
