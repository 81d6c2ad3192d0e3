//! How bytes travel between agent and service.

pub mod message;
