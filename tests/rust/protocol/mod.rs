//! What agent and service say to each other.

mod calls;
mod messages;
mod recorded;
