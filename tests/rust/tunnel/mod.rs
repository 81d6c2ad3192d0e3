//! How bytes travel between agent and service.

mod calls;
mod messages;
mod sessions;
mod support;
