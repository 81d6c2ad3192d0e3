//! Streams over one connection, and peers that break its rules.

mod floods;
mod frames;
mod groups;
mod odd_frames;
mod sessions;
mod states;
pub mod support;
