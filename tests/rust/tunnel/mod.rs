//! How bytes travel between agent and service.

mod messages;
mod session;
